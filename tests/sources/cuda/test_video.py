"""Video. No capture is at hand, so the tests make small exports with NVIDIA's columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.sources.small_reports import MAIN, PROCESS, WORKER, export, get_account, translate_reports
from tests.trace_reader import pair_intervals

ENCODER, DECODER, JPEG = 63000260, 63000261, 63000262
COLUMNS = ("start", "end", "eventClass", "globalTid", "nameId")


def test_calls_of_each_library_have_a_type(tmp_path: Path) -> None:
    tables = {
        "NVVIDEO_ENCODER_API": (COLUMNS, [(20, 60, 65, MAIN, 0), (50, 80, 65, MAIN, 0), (90, 80, 65, MAIN, 0)]),
        "NVVIDEO_DECODER_API": (COLUMNS, [(30, 70, 66, WORKER, 1), (40, 50, 66, WORKER, 1)]),
        "NVVIDEO_JPEG_API": (COLUMNS, [(10, 15, 67, MAIN, 2), (11, 12, 67, None, 2)]),
    }
    strings = ["NvEncEncodePicture", "cuvidDecodePicture", "nvjpegDecode"]
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", strings, tables)], tmp_path / "x.prv", "video")
    intervals = pair_intervals(trace, ENCODER, DECODER, JPEG)
    assert sorted(
        (e.begin + 10, e.end + 10, e.row, e.type, trace.values[e.type][e.value]) for e in intervals.itertuples()
    ) == [
        (10, 15, 0, JPEG, "nvjpegDecode"),
        (20, 60, 0, ENCODER, "NvEncEncodePicture"),
        (30, 70, 1, DECODER, "cuvidDecodePicture"),
        (40, 50, 1, DECODER, "cuvidDecodePicture"),
    ]
    account = get_account(summary, "video")
    assert (account.read, account.written) == (7, 4)
    assert account.dropped == {
        "partly overlaps another call on its thread": 1,
        "ends before it starts": 1,
        "no thread": 1,
    }


DECODING, ENCODING, ENGINE, LANES = 63000510, 63000520, 63000263, 8
WORK = (
    "start",
    "end",
    "globalEngineId",
    "engineType",
    "engineId",
    "vmId",
    "contextId",
    "globalPid",
    "apiId",
    "codecId",
)
CALLS = (*COLUMNS, "apiId")
STRANGER = 1 << 48 | 99 << 24


def work(start: object, end: object, kind: int, process: object, api: int, codec: object = 2, engine: int = 0) -> tuple:
    return (start, end, 1, kind, engine, 1, 1, process, api, codec)


def test_work_is_on_the_thread_that_made_the_call(tmp_path: Path) -> None:
    tables = {
        "NVVIDEO_DECODER_API": (CALLS, [(10, 12, 66, WORKER, 0, 5)]),
        "NVVIDEO_ENCODER_API": (
            CALLS,
            [(10, 20, 65, MAIN, 0, 6), (21, 22, 65, MAIN, 0, 5), (30, 31, 65, WORKER, 0, None)],
        ),
        "GPU_VIDEO_ENGINE_WORKLOAD": (
            WORK,
            [
                work(15, 40, 0, PROCESS, 5, 2, 1),
                work(20, 30, 0, PROCESS, 5, 6),  # at the same time
                work(25, 26, 1, PROCESS, 6, None),
                work(50, 60, 1, PROCESS, 77, 99),  # of no call: of the main thread
                work(15, 40, 0, STRANGER, 5),
                work(15, 40, 9, PROCESS, 5),
                work(15, 40, 0, None, 5),
                work(15, None, 0, PROCESS, 5),
            ],
        ),
        "GPU_VIDEO_ENGINE_MISSING": (("start", "end", "globalEngineId", "rangeCount"), [(1, 2, 1, 3), (1, 2, 1, 4)]),
    }
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", ["call"], tables)], tmp_path / "x.prv", "video")
    intervals = pair_intervals(trace, *range(DECODING, DECODING + 40))
    assert sorted(
        (e.begin + 10, e.end + 10, e.row, e.type, trace.values[e.type][e.value]) for e in intervals.itertuples()
    ) == [
        (15, 40, 1, DECODING, "H.264"),
        (20, 30, 1, DECODING + 1, "HEVC"),
        (25, 26, 0, ENCODING, "Unknown codec"),
        (50, 60, 0, ENCODING, "Unknown codec"),
    ]
    engines = trace.events[trace.events["type"] == ENGINE]
    shown = [(e.time + 10, e.row, e.value) for e in engines.itertuples()]
    assert shown == [(15, 1, 1), (20, 1, 0), (25, 0, 0), (50, 0, 0)]
    account = get_account(summary, "video")
    assert (account.read, account.written) == (12, 8)
    assert account.dropped == {
        "an engine of unknown kind": 1,
        "no thread": 1,
        "no start or end": 1,
        "its process made no traced call": 1,
    }
    assert any("did not record 7 times" in warning for report in summary.reports for warning in report.warnings)


def test_work_that_overlaps_is_all_there(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    begin = np.sort(random.integers(10, 3000, 400))
    end = begin + random.integers(0, 40, 400)
    kinds = random.integers(0, 4, 400)
    rows = [work(int(b), int(e), int(k), PROCESS, 1) for b, e, k in zip(begin, end, kinds, strict=True)]
    tables = {"NVVIDEO_JPEG_API": (COLUMNS, [(5, 6, 67, MAIN, 0)]), "GPU_VIDEO_ENGINE_WORKLOAD": (WORK, rows)}
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", ["call"], tables)], tmp_path / "x.prv", "video")
    intervals = pair_intervals(trace, *range(DECODING, DECODING + 40))
    shown = sorted((e.begin + 5, e.end + 5, (e.type - DECODING) // 10) for e in intervals.itertuples())
    assert shown == sorted((row[0], row[1], row[3]) for row in rows)
    assert get_account(summary, "video").dropped == {}
    for _, lane in intervals.sort_values("begin").groupby("type"):
        assert (lane["begin"].to_numpy()[1:] >= lane["end"].to_numpy()[:-1]).all()


def test_more_work_at_a_time_than_lanes_is_counted(tmp_path: Path) -> None:
    rows = [work(10 + i, 1000, 1, PROCESS, 1) for i in range(LANES + 2)]
    tables = {"NVVIDEO_JPEG_API": (COLUMNS, [(5, 6, 67, MAIN, 0)]), "GPU_VIDEO_ENGINE_WORKLOAD": (WORK, rows)}
    _, summary = translate_reports([export(tmp_path / "a.sqlite", ["call"], tables)], tmp_path / "x.prv", "video")
    account = get_account(summary, "video")
    assert (account.read, account.written) == (LANES + 3, LANES + 1)
    assert account.dropped == {f"more than {LANES} works of a kind of engine at a time": 2}
