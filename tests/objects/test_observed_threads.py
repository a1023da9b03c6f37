"""Threads of which something is known that is no call of theirs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.objects.places import Places, Thread

PROCESS = 1 << 32
BATCHES = st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 9), min_size=1, max_size=8)), max_size=8)


@given(BATCHES)
def test_a_thread_is_only_observed_if_no_call_of_it_is_known_whatever_came_first(batches):
    places = Places()
    ids: dict[int, int] = {}
    for calls, numbers in batches:
        tids = np.array([(PROCESS + n % 3 << 24) + n for n in numbers], np.int64)
        found = places.threads(tids, application=False) if calls else places.observed_threads(tids)
        for tid, place in zip(tids.tolist(), found.tolist(), strict=True):
            assert ids.setdefault(tid, place) == place
            assert places.all[place] == Thread(tid)
    called = {(PROCESS + n % 3 << 24) + n for calls, numbers in batches if calls for n in numbers}
    assert {places.all[place].global_tid for place in places.only_observed} == set(ids) - called
    assert places.called == places.instrumented == {tid >> 24 for tid in called}
    assert not places.application


def test_system_calls_make_a_task_but_no_instrumented_process():
    places = Places()
    tids = np.array([PROCESS << 24], np.int64)
    places.threads(tids, application=False, system_calls=True)
    assert (places.called, places.instrumented) == ({PROCESS}, set())
    places.threads(tids, application=False)
    assert places.instrumented == {PROCESS}
