"""The store gives back what was put, in memory and on disk, from this process and from others."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.parallel import Work, run_in_processes

COLUMNS = st.lists(st.tuples(st.sampled_from([np.int8, np.int32, np.int64]), st.integers(0, 300)), max_size=6)


def columns(shape, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(-100, 100, n).astype(dtype) for dtype, n in shape]


def got(store, slot, like):
    out = [np.zeros_like(column) for column in like]
    store.get(slot, out)
    return out


@pytest.mark.slow
@given(st.lists(COLUMNS, max_size=8), st.integers(0, 5000))
def test_what_was_put_comes_back(tmp_path_factory, shapes, memory):
    with Store(tmp_path_factory.getbasetemp(), memory) as store:
        kept = [columns(shape, seed) for seed, shape in enumerate(shapes)]
        slots = [store.put(group) for group in kept]
        for slot, group in zip(slots, kept, strict=True):
            for back, column in zip(got(store, slot, group), group, strict=True):
                np.testing.assert_array_equal(back, column)
        in_memory = sum(c.nbytes for slot, group in zip(slots, kept, strict=True) if not slot.on_disk for c in group)
        assert in_memory <= memory


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no memory without a name")
def test_memory_first_then_disk(tmp_path):
    with Store(tmp_path, 1000) as store:
        assert [store.put([np.zeros(50, np.int64)]).on_disk for _ in range(4)] == [False, False, True, True]
        assert not store.put([np.zeros(25, np.int64)]).on_disk, "what is left of the memory is used"
        assert list(tmp_path.iterdir()) == [], "the file has no name"


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("memory", [0, 10**9])
def test_other_processes(tmp_path, memory):
    """Each process has its own shelf; every process can get the columns of all."""

    def put(index, tick):
        return store.put([np.full(index + 1, index, np.int64)])

    with Store(tmp_path, memory, shelves=4) as store:
        slots = run_in_processes(Work(20, put), 3, lambda n: None, lambda number: store.use_shelf(number + 1))
        for index, slot in enumerate(slots):
            (back,) = got(store, slot, [np.zeros(index + 1, np.int64)])
            np.testing.assert_array_equal(back, index)
        own = store.put([np.arange(5)])
        assert own.shelf == 0
        np.testing.assert_array_equal(got(store, own, [np.zeros(5, np.int64)])[0], np.arange(5))


def test_folder_that_takes_no_file(tmp_path):
    with pytest.raises(TranslationError, match=r"no/folder: cannot keep events there.*see tmp"):
        Store(tmp_path / "no" / "folder", 0)


def test_limit_of_the_size_of_files(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Store(tmp_path, 0) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            with pytest.raises(TranslationError, match="File too large"):
                store.put([np.zeros(1000, np.int64)])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)


def test_limit_of_open_files(tmp_path):
    """The remedy is not another folder; the files that were opened are closed."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 20, before[1]))
    try:
        with pytest.raises(TranslationError, match=r"^too many open files.*see jobs"):
            Store(tmp_path, 0, shelves=200)
        assert len(list(Path("/proc/self/fd").iterdir())) == opened
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
