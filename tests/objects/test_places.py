"""Places that a report numbers alike."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.objects.places import Device, Places, Thread


def test_a_thread_and_a_gpu_of_one_number_are_two_places() -> None:
    """Damage makes threads with the number 0. As tuples, such a thread and GPU 0 are equal."""
    places = Places()
    thread = places.threads(np.array([0], np.int64), application=False)
    device = places.devices(np.array([0], np.int64))
    observed = places.observed_threads(np.array([0], np.int64))
    assert (thread.tolist(), device.tolist(), observed.tolist()) == ([0], [1], [0])
    assert [type(place) for place in places.all] == [Thread, Device]
    assert not places.only_observed


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
