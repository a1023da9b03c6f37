"""Calls of the video libraries, of which no capture is at hand: small exports with NVIDIA's columns."""

from __future__ import annotations

from pathlib import Path

from tests.sources.small_reports import MAIN, WORKER, account, export, trace_of
from tests.trace_reader import intervals

ENCODER, DECODER, JPEG = 63000260, 63000261, 63000262
COLUMNS = ("start", "end", "eventClass", "globalTid", "nameId")


def test_calls_of_each_library_have_a_type(tmp_path: Path) -> None:
    tables = {
        "NVVIDEO_ENCODER_API": (COLUMNS, [(20, 60, 65, MAIN, 0), (50, 80, 65, MAIN, 0), (90, 80, 65, MAIN, 0)]),
        "NVVIDEO_DECODER_API": (COLUMNS, [(30, 70, 66, WORKER, 1), (40, 50, 66, WORKER, 1)]),
        "NVVIDEO_JPEG_API": (COLUMNS, [(10, 15, 67, MAIN, 2), (11, 12, 67, None, 2)]),
    }
    strings = ["NvEncEncodePicture", "cuvidDecodePicture", "nvjpegDecode"]
    trace, summary = trace_of([export(tmp_path / "a.sqlite", strings, tables)], tmp_path / "x.prv", "video")
    found = intervals(trace, ENCODER, DECODER, JPEG)
    assert sorted(
        (e.begin + 10, e.end + 10, e.row, e.type, trace.values[e.type][e.value]) for e in found.itertuples()
    ) == [
        (10, 15, 0, JPEG, "nvjpegDecode"),
        (20, 60, 0, ENCODER, "NvEncEncodePicture"),
        (30, 70, 1, DECODER, "cuvidDecodePicture"),
        (40, 50, 1, DECODER, "cuvidDecodePicture"),
    ]
    told = account(summary, "video")
    assert (told.read, told.written) == (7, 4)
    assert told.dropped == {"crosses another of its thread": 1, "end before begin": 1, "no thread": 1}
