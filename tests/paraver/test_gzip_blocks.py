"""Compression in members, judged by the standard library's gzip and zlib."""

from __future__ import annotations

import gzip
import random
import zlib

import pytest

from nsys2prv_ng.paraver.gzip_blocks import BLOCK_BYTES, compress
from nsys2prv_ng.paraver.output import TraceOutput

SIZES = [1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES, 5 * BLOCK_BYTES + 12345]


def text_of(size):
    numbers = random.Random(size)
    line = b"".join(b"2:1:1:1:1:%d:90000001:%d\n" % (i * 1009, numbers.randrange(1000)) for i in range(20000))
    return (line * (size // len(line) + 1))[:size]


def list_members(data):
    """Return the text of each member of a gzip file."""
    texts = []
    while data:
        one = zlib.decompressobj(31)
        texts.append(one.decompress(data) + one.flush())
        assert one.eof
        data = one.unused_data
    return texts


@pytest.mark.parametrize("size", SIZES)
def test_members_of_a_fixed_length(size):
    text = text_of(size)
    data = b"".join(compress(memoryview(text)))
    assert gzip.decompress(data) == text
    assert list_members(data) == [text[i : i + BLOCK_BYTES] for i in range(0, size, BLOCK_BYTES)]
    assert data[:8] == b"\x1f\x8b\x08\x00" + bytes(4)  # deflate, no name and no other field, no time


def test_no_text_is_no_member():
    assert list(compress(b"")) == []


def test_the_header_of_a_compressed_trace_is_a_member_of_its_own(tmp_path):
    with TraceOutput(tmp_path / "a.prv.gz", force=False) as trace:
        for suffix in ("pcf", "row"):
            trace.write_text(suffix, "")
        trace.write_header("#Paraver\n")
        for member in compress(b"1:1\n"):
            trace.write_prv(member)
    assert list_members((tmp_path / "a.prv.gz").read_bytes()) == [b"#Paraver\n", b"1:1\n"]
