"""Crafted pages are read as sqlite3 reads them, or left to it. No read leaves the buffer: guard pages are beside it."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import random
import signal
import sqlite3
import struct
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.report import page_kernels
from tests.report.guarded_memory import GuardedMemory
from tests.report.page_databases import by_pages, by_sqlite, list_columns
from tests.tiers import cases

PAGES = 21_000
BATCH = 1_500
SIZES = (512, 1024, 4096, 65536)
SIZE_OF_SERIAL = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)
INTEGERS = (0, 1, 2, 3, 4, 5, 6, 8, 9)


def varint(value: int, length: int = 0) -> bytes:
    """A number of 7 bits in each byte, in at least `length` bytes."""
    groups = [value & 127]
    while value := value >> 7:
        groups.append(value & 127 | 128)
    groups += [128] * (length - len(groups))
    return bytes(reversed(groups))


def size_of(serial: int) -> int:
    return SIZE_OF_SERIAL[serial] if serial < 12 else (serial - 12) // 2


class Crafter:
    """Makes leaf pages of cells that are sound, or lie about sizes, headers and positions."""

    def __init__(self, seed: int) -> None:
        self.any = random.Random(seed)
        self.page_size = SIZES[seed % len(SIZES)]
        self.columns = self.any.choice((1, 4, 9, 60))

    def make_header(self, serials: list[int]) -> bytes:
        types = b"".join(map(varint, serials))
        length = len(types) + (1 if len(types) < 127 else 2)
        if self.any.random() < 0.05:
            length = self.any.choice((0, 1, length - 1, length + 1, length + 40, 127, 5000))
        return varint(length) + types

    def make_serials(self) -> list[int]:
        serials = self.any.choices(INTEGERS, k=self.columns)
        for odd in ((10, 11, 7), (12, 13, 30, 41), (2 * self.page_size, 2**27 + 1, 2**35)):
            if self.any.random() < 0.1:
                serials[self.any.randrange(self.columns)] = self.any.choice(odd)
        if self.any.random() < 0.1:
            serials = serials[: self.any.randrange(self.columns + 1)]
        return serials

    def make_cell(self, number: int, header: bytes, serials: list[int]) -> bytes:
        body = self.any.randbytes(min(sum(map(size_of, serials)), self.page_size))
        payload = len(header) + len(body)
        if self.any.random() < 0.1:
            payload = self.any.choice((0, 1, payload - 1, payload + 1, 2 * payload, self.page_size, 2**21, 2**31))
        length = 9 if self.any.random() < 0.02 else 0
        return varint(payload, length) + varint(number, length) + header + body

    def make_cells(self) -> list[bytes]:
        """Cells in the order of rows; some have headers of earlier ones, with other sizes."""
        kinds = [(self.make_header(serials), serials) for serials in (self.make_serials() for _ in range(12))]
        return [self.make_cell(number, *self.any.choice(kinds)) for number in range(1, self.any.choice((2, 9, 150)))]

    def make_cells_that_share_slots(self) -> list[bytes]:
        """Cells whose layouts are kept, many others that may take their slots, and one of the headers without a record.

        The reader keeps layouts of 512 headers of at most 48 bytes, so about half of the time that slot is taken.
        """
        self.page_size, self.columns = 65536, 60
        short = [[*self.any.choices((1, 8, 9), k=self.any.randrange(1, 12))] for _ in range(25)]
        long = [self.any.choices((1, 2), k=self.columns) for _ in range(370)]
        headers = [varint(len(serials) + 1) + bytes(serials) for serials in short]
        sound = [*zip(headers, short, strict=True), *((varint(61) + bytes(serials), serials) for serials in long)]
        cells = []
        for number, (header, serials) in enumerate(sound, 1):
            body = self.any.randbytes(sum(map(size_of, serials)))
            cells.append(varint(len(header) + len(body)) + varint(number) + header + body)
        return [*cells, varint(0) + varint(1000) + self.any.choice(headers)]

    def make_page(self) -> bytes:
        shares = self.any.random() < 0.04
        cells = self.make_cells_that_share_slots() if shares else self.make_cells()
        page, at, pointers = bytearray(self.page_size), self.page_size, []
        in_place = (
            cells[::-1] if shares or self.any.random() < 0.5 else cells
        )  # the last cell ends the page, or the first
        for cell in in_place:
            if at - len(cell) < 8 + 2 * (len(pointers) + 1):
                break
            at -= max(len(cell), 4)
            page[at : at + len(cell)] = cell
            pointers.append(at)
        if in_place is not cells:
            pointers.reverse()
        for i in range(0 if shares else len(pointers)):
            if self.any.random() < 0.01:
                pointers[i] = self.any.choice((0, at - 1, self.page_size - 1, self.page_size - 4, 65535))
        if not shares and self.any.random() < 0.1 and pointers:  # a cell that the end of the page cuts
            cut = self.any.choice(cells)[: self.any.choice((4, 5, 9, 30))]
            pointers.append(self.page_size - len(cut))
            page[-len(cut) :] = cut
        page[:8] = struct.pack(">BHHHB", 13, 0, len(pointers), at & 0xFFFF, 0)
        page[8 : 8 + 2 * len(pointers)] = struct.pack(f">{len(pointers)}H", *pointers)
        if not shares and self.any.random() < 0.1:
            page[self.any.randrange(8)] = self.any.choice((0, 1, 2, 5, 10, 13, 127, 255))
        return bytes(page)


def craft(seed: int, folder: Path, path: Path) -> list[str]:
    """Write a database with one crafted page; return some columns of its table."""
    crafter = Crafter(seed)
    page = crafter.make_page()
    base = folder / f"{crafter.page_size}-{crafter.columns}.sqlite"
    if not base.exists():
        with closing(sqlite3.connect(base, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size={crafter.page_size}")
            connection.execute(f"CREATE TABLE t ({', '.join(f'c{i} INTEGER' for i in range(crafter.columns))})")
    content, size = base.read_bytes(), crafter.page_size
    path.write_bytes(content[:size] + page + content[2 * size :])  # of the table, after that of the schema
    names = list_columns(path)
    return crafter.any.sample(names, crafter.any.randrange(1, min(len(names), 8) + 1))


def compare(path: Path, columns: list[str]) -> str:
    """Whether the page was read, and if so, as sqlite3 reads it."""
    found = by_pages(path, columns)
    if found is None:
        return "left"
    np.testing.assert_array_equal(found, by_sqlite(path, columns))
    return "read"


@pytest.mark.slow
@pytest.mark.parametrize("first", cases(range(0, PAGES, BATCH), push=1))
def test_crafted_pages(tmp_path, monkeypatch, first):
    memory = GuardedMemory()
    monkeypatch.setattr(page_kernels, "make_room", lambda pages, size: memory.make(pages * size + page_kernels.WORD))
    path = tmp_path / "a.sqlite"
    craft(first, tmp_path, path)
    by_pages(path, ["c0"])  # loads the kernels
    shared = np.frombuffer(mmap.mmap(-1, 32), np.int64)
    child = os.fork()
    if not child:
        outcomes = Counter()
        try:
            for seed in range(first, first + BATCH):
                shared[0] = seed
                outcomes[compare(path, craft(seed, tmp_path, path))] += 1
            shared[1], shared[2] = outcomes["read"], outcomes["left"]
            os._exit(0)
        except BaseException as error:
            print(f"page {shared[0]}: {error}", flush=True)
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"page {shared[0]} ended with {status}"
    assert shared[1] > BATCH // 20 and shared[2] > BATCH // 20  # so that both were tried


@pytest.mark.parametrize("seed", [15, 55, 116, 269])
def test_pages_that_were_read_wrongly_once(tmp_path, seed):
    """Records of size 0 with the header of another one, and a header without columns."""
    compare(tmp_path / "a.sqlite", craft(seed, tmp_path, tmp_path / "a.sqlite"))


@pytest.mark.parametrize("size", [4096 + 8, 512])
def test_guard_pages_end_the_process(size):
    """A read of one byte beyond a buffer is seen, on the side on which it touches a guard page."""
    memory = GuardedMemory()
    for _ in range(4):
        array = memory.make(size)
        beyond = array.ctypes.data + (-1 if array.ctypes.data % mmap.PAGESIZE == 0 else size)
        child = os.fork()
        if not child:
            faulthandler.disable()
            ctypes.c_uint8.from_address(beyond).value  # noqa: B018
            os._exit(0)
        assert os.waitpid(child, 0)[1] & 127 == signal.SIGSEGV
