"""Compression in parallel blocks, judged by the standard library's gzip and zlib."""

from __future__ import annotations

import errno
import gzip
import io
import random
import threading
import time
import zlib

import pytest

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver import gzip_blocks
from nsys2prv_ng.paraver.gzip_blocks import BLOCK_BYTES, GzipBlocks
from nsys2prv_ng.paraver.output import TraceOutput

SIZES = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES, 5 * BLOCK_BYTES + 12345]


def text_of(size):
    numbers = random.Random(size)
    line = b"".join(b"2:1:1:1:1:%d:90000001:%d\n" % (i * 1009, numbers.randrange(1000)) for i in range(20000))
    return (line * (size // len(line) + 1))[:size]


def compress(parts, jobs):
    file = io.BytesIO()
    blocks = GzipBlocks(file, jobs)
    for part in parts:
        blocks.write(part)
    blocks.close()
    return file.getvalue()


def members(data):
    """Return the text of each member of a gzip file."""
    texts = []
    while data:
        one = zlib.decompressobj(31)
        texts.append(one.decompress(data) + one.flush())
        assert one.eof
        data = one.unused_data
    return texts


def gzip_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("gzip")]


@pytest.mark.parametrize("size", SIZES)
def test_members_of_a_fixed_length(size):
    text = text_of(size)
    data = compress([text], 2)
    assert gzip.decompress(data) == text
    expected = [text[i : i + BLOCK_BYTES] for i in range(0, size, BLOCK_BYTES)] or [b""]
    assert members(data) == expected
    assert data[:8] == b"\x1f\x8b\x08\x00" + bytes(4)  # deflate, no name and no other field, no time


@pytest.mark.parametrize("jobs", [1, 2, 5])
@pytest.mark.parametrize("longest", [50_000, 3 * BLOCK_BYTES])
def test_bytes_do_not_depend_on_jobs_and_parts(jobs, longest):
    text = text_of(SIZES[-1])
    lengths = random.Random(longest + jobs)
    parts, at = [], 0
    while at < len(text):
        length = lengths.randrange(longest)
        parts.append(memoryview(text)[at : at + length])
        at += length
    assert compress(parts, jobs) == compress([text], 1)


def test_what_was_written_may_be_changed():
    text = bytearray(text_of(2 * BLOCK_BYTES + 7))
    before = bytes(text)
    file = io.BytesIO()
    blocks = GzipBlocks(file, 1)
    blocks.write(memoryview(text))
    text[:] = bytes(len(text))
    blocks.close()
    assert gzip.decompress(file.getvalue()) == before


def test_few_blocks_are_in_memory(monkeypatch):
    """Where compression is slow, writing waits for it."""
    waiting, most = 0, 0

    class File(io.BytesIO):
        def write(self, data):
            nonlocal waiting
            waiting -= 1
            return super().write(data)

    def slow(data, level, wbits):
        time.sleep(0.01)
        return zlib.compress(data, 0)

    monkeypatch.setattr(gzip_blocks.isal_zlib, "compress", slow)
    blocks = GzipBlocks(File(), 2)
    for _ in range(20):
        waiting += 1
        blocks.write(bytes(BLOCK_BYTES))
        most = max(most, waiting)
    blocks.close()
    assert waiting == 0
    assert most <= 4


def test_close_ends_the_threads():
    compress([text_of(3 * BLOCK_BYTES)], 3)
    assert not gzip_threads()


def test_an_exception_ends_the_threads_and_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), TraceOutput(tmp_path / "a.prv.gz", force=False, jobs=3) as trace:
        trace.write_prv(text_of(5 * BLOCK_BYTES))
        assert gzip_threads()
        raise RuntimeError
    assert not gzip_threads()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("blocks", [1, 10])  # found when the trace is closed, or while it is written
def test_an_error_in_a_thread(tmp_path, monkeypatch, blocks):
    def broken(data, level, wbits):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(gzip_blocks.isal_zlib, "compress", broken)
    with (
        pytest.raises(TranslationError, match="cannot write the trace: Input/output error"),
        TraceOutput(tmp_path / "a.prv.gz", force=False) as trace,
    ):
        trace.write_prv(text_of(blocks * BLOCK_BYTES))
    assert not gzip_threads()
    assert not list(tmp_path.iterdir())
