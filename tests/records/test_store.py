"""The store gives back what was put, in memory and on disk, from this process and from others."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import signal
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.records import store as stores
from nsys2prv_ng.records.folder_store import FolderStore
from nsys2prv_ng.records.store import LocalStore, Slot, load_columns, store_columns
from nsys2prv_ng.runtime.processes import Work, run_in_processes

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
    with LocalStore(tmp_path_factory.getbasetemp(), memory) as store:
        kept = [columns(shape, seed) for seed, shape in enumerate(shapes)]
        slots = [store.put(group) for group in kept]
        for slot, group in zip(slots, kept, strict=True):
            for back, column in zip(got(store, slot, group), group, strict=True):
                np.testing.assert_array_equal(back, column)
        in_memory = sum(c.nbytes for slot, group in zip(slots, kept, strict=True) if not slot.on_disk for c in group)
        assert in_memory <= memory


@pytest.mark.parametrize("memory", [0, 10**9])
@pytest.mark.parametrize("least", [1, 10**9])
@given(shapes=st.lists(COLUMNS, max_size=4))
def test_loaded_columns_are_the_callers(tmp_path_factory, memory, least, shapes):
    """Mapped or copied: what a caller changes, nobody else gets."""
    with LocalStore(tmp_path_factory.getbasetemp(), memory) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "_LEAST_MAPPED", least)
        kept = [sorted(columns(shape, seed), key=lambda c: -c.itemsize) for seed, shape in enumerate(shapes)]
        slots = [store.put(group) for group in kept]
        for _ in range(2):
            for slot, group in zip(slots, kept, strict=True):
                lengths, types = [column.size for column in group], [column.dtype for column in group]
                for back, column in zip(store.load(slot, lengths, types), group, strict=True):
                    assert back.flags.writeable and back.flags.aligned and back.dtype == column.dtype
                    np.testing.assert_array_equal(back, column)
                    back += 1


def test_columns_that_cannot_be_mapped_are_copied(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.ENOMEM, "the address space is limited")

    monkeypatch.setattr(stores.mmap, "mmap", refuse)
    with LocalStore(tmp_path, 10**9) as store:
        slot = store.put([np.arange(10**5)])
        np.testing.assert_array_equal(store.load(slot, [10**5], [np.int64])[0], np.arange(10**5))


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no memory without a name")
def test_memory_first_then_disk(tmp_path):
    with LocalStore(tmp_path, 1000) as store:
        assert [store.put([np.zeros(50, np.int64)]).on_disk for _ in range(4)] == [False, False, True, True]
        assert not store.put([np.zeros(25, np.int64)]).on_disk, "what is left of the memory is used"
        assert list(tmp_path.iterdir()) == [], "the file has no name"


@pytest.mark.parametrize("memory", [0, 10**9])
def test_other_processes(tmp_path, memory):
    """Each process has its own shelf; every process can get the columns of all."""

    def put(index, tick):
        return store.put([np.full(index + 1, index, np.int64)])

    with LocalStore(tmp_path, memory) as store:
        with store.lend_shelves(3) as take_shelf:
            slots = run_in_processes(Work(20, put), 3, lambda n: None, take_shelf)
        for index, slot in enumerate(slots):
            (back,) = got(store, slot, [np.zeros(index + 1, np.int64)])
            np.testing.assert_array_equal(back, index)
        own = store.put([np.arange(5)])
        assert own.shelf == 0
        np.testing.assert_array_equal(got(store, own, [np.zeros(5, np.int64)])[0], np.arange(5))


def test_folder_that_takes_no_file(tmp_path):
    with pytest.raises(TranslationError, match=r"no/folder: cannot keep events there.*see tmp"):
        LocalStore(tmp_path / "no" / "folder", 0)


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_limit_of_the_size_of_files(tmp_path, memory):
    """It holds for memory that processes share, too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with LocalStore(tmp_path, memory) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            with pytest.raises(TranslationError, match=r"File too large.*see `ulimit -f`"):
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
        with (
            pytest.raises(TranslationError, match=r"^too many open files.*see jobs"),
            LocalStore(tmp_path, 0) as store,
            store.lend_shelves(200),
        ):
            pass
        assert len(list(Path("/proc/self/fd").iterdir())) == opened
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_shelf_goes_on_where_a_process_left_it(tmp_path):
    """A process that replaces one that ended does not overwrite what that one put."""

    def put(index, tick):
        return store.put([np.full(3, index, np.int64)])

    with LocalStore(tmp_path, 10**6) as store:
        slots = []
        for _ in range(2):
            with store.lend_shelves(1) as take_shelf:
                slots += run_in_processes(Work(2, put), 1, lambda n: None, take_shelf)
        for index, slot in enumerate(slots):
            assert slot.shelf == 1
            np.testing.assert_array_equal(got(store, slot, [np.zeros(3, np.int64)])[0], index % 2)


def test_processes_of_two_contexts_share_no_shelf(tmp_path):
    """Neither do they share that of the process that made the store."""

    def put(index, tick):
        return store.put([np.full(5, os.getpid(), np.int64)])

    with LocalStore(tmp_path, 10**6) as store, store.lend_shelves(2) as first, store.lend_shelves(2) as second:
        slots = [slot for take in (first, second) for slot in run_in_processes(Work(4, put), 2, lambda n: None, take)]
    assert {slot.shelf for slot in slots[:4]} <= {1, 2} and {slot.shelf for slot in slots[4:]} <= {3, 4}


def test_a_process_without_a_shelf_lends_none(tmp_path):
    """As one that works beside the process that made the store, and starts others."""

    def put(index, tick):
        return store.put([np.zeros(5, np.int64)])

    def start_another(index, tick):
        with store.lend_shelves(1) as take_shelf:
            return yield_one(take_shelf)

    def yield_one(take_shelf):
        process = os.fork()
        if not process:
            take_shelf(0)
            try:
                put(0, None)
            except AssertionError:
                os._exit(7)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    with LocalStore(tmp_path, 10**6) as store:
        assert run_in_processes(Work(1, start_another), 1, lambda n: None, lambda n: None) == [7]


# ---- folders ---------------------------------------------------------------------------------------------------------


def test_any_part_of_what_was_put_comes_back(tmp_path):
    store = FolderStore(tmp_path)
    group = columns([(np.int64, 5), (np.int8, 3), (np.int32, 7)])
    store.put([np.zeros(9)])
    slot = store.put(group)
    for back, column in zip(got(store, slot, group), group, strict=True):
        np.testing.assert_array_equal(back, column)
    part = np.zeros(4, np.int32)
    store.get(slot._replace(at=slot.at + 5 * 8 + 3 + 2 * 4), [part])
    np.testing.assert_array_equal(part, group[2][2:6])
    store.close()


def test_a_copy_puts_into_a_file_of_its_own(tmp_path):
    """So do the copies that are sent to other processes; each can get what the others put."""
    store = FolderStore(tmp_path)
    stores = [store, *(pickle.loads(pickle.dumps(store)) for _ in range(3))]
    slots = [own.put([np.full(5, number)]) for number, own in enumerate(stores)]
    assert len({slot.shelf for slot in slots}) == len(list(tmp_path.iterdir())) == 4
    for reader in stores:
        for number, slot in enumerate(slots):
            np.testing.assert_array_equal(got(reader, slot, [np.zeros(5, np.int64)])[0], number)


def test_more_files_than_are_open_at_a_time(tmp_path):
    slots = [FolderStore(tmp_path, f"shelf{number}").put([np.full(2, number)]) for number in range(100)]
    store = FolderStore(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number, slot in enumerate(slots * 2):
        np.testing.assert_array_equal(got(store, slot, [np.zeros(2, np.int64)])[0], number % 100)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 64
    store.close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_more_maps_than_there_may_be_files(tmp_path):
    """Each map holds a descriptor: the limit of this process rises as far as it may."""
    slots = [FolderStore(tmp_path, f"shelf{number}").put([np.full(2, number)]) for number in range(100)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    store = FolderStore(tmp_path)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(int(file.name) for file in Path("/proc/self/fd").iterdir()) + 40, hard)
    )
    try:
        for number, slot in enumerate(slots):
            assert store.map(slot).view(np.int64).tolist() == [number, number]
    finally:
        store.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_a_copy_puts_is_on_the_disk(tmp_path, monkeypatch):
    """Other machines see it only then, on NFS; what the first store put is there before a copy knows of it."""
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    store = FolderStore(tmp_path)
    store.put([np.arange(3)])
    assert synced == []
    copy = pickle.loads(pickle.dumps(store))
    assert synced == [24]
    copy.put([np.arange(5)])
    copy.put([np.arange(5)])
    assert synced == [24, 40, 80]


def test_what_another_process_put_since_a_file_was_opened(tmp_path):
    """NFS shows an open file as it was: it is opened again."""
    writer = FolderStore(tmp_path, "a")
    first = writer.put([np.arange(2)])
    old = tmp_path / "old"
    (tmp_path / "a.columns").replace(old)  # what an open file shows
    (tmp_path / "a.columns").write_bytes(old.read_bytes())
    reader = FolderStore(tmp_path)
    assert reader.map(first, 16).size == 16
    (tmp_path / "new").write_bytes(old.read_bytes() + np.arange(3).tobytes())
    (tmp_path / "new").replace(tmp_path / "a.columns")
    assert reader.map(first, 16).size == 16
    (back,) = got(reader, Slot("a", True, 16), [np.arange(3)])
    assert back.tolist() == [0, 1, 2]
    assert reader.map(first, 40).size == 40


def test_columns_of_another_folder(tmp_path):
    for name in ("shards", "own"):
        (tmp_path / name).mkdir()
    shard = FolderStore(tmp_path / "shards", "a").put([np.arange(4)])
    store = FolderStore(tmp_path / "own", read_from=tmp_path / "shards")
    own = store.put([np.arange(2)])
    with LocalStore(tmp_path, 10**6, read_from=store) as local:
        third = local.put([np.arange(3)])
        for slot, length in ((shard, 4), (own, 2), (third, 3)):
            np.testing.assert_array_equal(got(local, slot, [np.zeros(length, np.int64)])[0], np.arange(length))
    assert [path.name for path in (tmp_path / "shards").iterdir()] == ["a.columns"]


@pytest.mark.parametrize("shelf", ["../a", "/etc/passwd", "", ".a"])
def test_a_shelf_is_never_outside_its_folder(tmp_path, shelf):
    (tmp_path / "in").mkdir()
    (tmp_path / "a.columns").write_bytes(bytes(80))
    with pytest.raises(TranslationError, match="not in it"):
        FolderStore(tmp_path / "in").get(Slot(shelf, True, 0), [np.zeros(1)])


def test_a_file_that_was_cut(tmp_path):
    store = FolderStore(tmp_path)
    slot = store.put([np.arange(100)])
    os.truncate(next(tmp_path.iterdir()), 500)
    with pytest.raises(TranslationError, match=r"shorter than it was.*read its report again"):
        got(store, slot, [np.zeros(100, np.int64)])


def test_an_abandoned_file_is_gone(tmp_path):
    store = FolderStore(tmp_path)
    store.put([np.arange(100)])
    store.abandon()
    assert not list(tmp_path.iterdir())


def test_stored_columns_keep_their_types(tmp_path):
    group = [np.arange(6)[::2], np.array([1, 2, 3], np.int8), np.array([True, False, True])]
    with LocalStore(tmp_path, 100) as store:
        back = load_columns(store_columns(group, store), store)
    for one, other in zip(back, group, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("local", [True, False])
def test_mapped_pages_are_given_back(tmp_path, monkeypatch, local):
    """Linux counts the pages of files that a process looked at in its memory."""

    def count_mapped():
        status = Path("/proc/self/status").read_text().splitlines()
        return 1024 * sum(int(line.split()[1]) for line in status if line.startswith(("RssFile", "RssShmem")))

    monkeypatch.setattr(stores, "_MOST_MAPPED", 4 << 20)
    shard = FolderStore(tmp_path, "a")
    slot = shard.put([np.arange(1 << 20)])
    shard.close()
    with LocalStore(tmp_path, 10**9, read_from=shard) if local else nullcontext(FolderStore(tmp_path)) as store:
        before = count_mapped()
        assert store.map(slot).view(np.int64).sum() == sum(range(1 << 20))
        assert count_mapped() - before > 7 << 20
        store.release()
        assert count_mapped() - before < 1 << 20
        assert store.map(slot).view(np.int64).sum() == sum(range(1 << 20)), "it is read again"
        monkeypatch.setattr(stores, "_MOST_MAPPED", 16 << 20)
        store.release()
        assert count_mapped() - before > 7 << 20, "it is not too much"
        if not local:
            store.close()
            store.release()
