"""Calls of cuBLAS and cuDNN. No capture is at hand, so the tests make small exports with NVIDIA's columns."""

from __future__ import annotations

from pathlib import Path

from tests.sources.small_reports import MAIN, UTC, WORKER, export, get_account, translate_reports
from tests.trace_reader import pair_intervals

CUBLAS, CUDNN = 63000230, 63000231
COLUMNS = ("start", "end", "eventClass", "globalTid", "nameId")
STRINGS = ["cublasSgemm_v2", "cublasCreate_v2", "cudnnConvolutionForward", "cudnnCreate"]


def test_calls_of_both_libraries(tmp_path: Path) -> None:
    tables = {
        "CUBLAS_EVENTS": (
            COLUMNS,
            [
                (20, 60, 61, MAIN, 0),
                (30, 40, 61, MAIN, 1),  # within the former
                (30, 70, 61, WORKER, 0),
                (50, 80, 61, MAIN, 0),  # crosses it
                (90, None, 61, MAIN, 0),
                (90, 95, 61, None, 0),
            ],
        ),
        "CUDNN_EVENTS": (COLUMNS, [(10, 100, 62, MAIN, 2), (110, 110, 62, MAIN, 3), (120, 115, 62, MAIN, 3)]),
    }
    trace, summary = translate_reports(
        [export(tmp_path / "a.sqlite", STRINGS, tables)], tmp_path / "x.prv", "cuda_libraries"
    )
    assert summary.start_utc_ns == UTC + 10
    intervals = pair_intervals(trace, CUBLAS, CUDNN)
    assert sorted(
        (e.begin + 10, e.end + 10, e.row, trace.values[e.type][e.value], e.type) for e in intervals.itertuples()
    ) == [
        (10, 100, 0, "cudnnConvolutionForward", CUDNN),
        (20, 60, 0, "cublasSgemm", CUBLAS),
        (30, 40, 0, "cublasCreate", CUBLAS),
        (30, 70, 1, "cublasSgemm", CUBLAS),
        (110, 110, 0, "cudnnCreate", CUDNN),
    ]
    account = get_account(summary, "cuda_libraries")
    assert (account.read, account.written) == (9, 5)
    assert account.dropped == {
        "no start or end": 1,
        "no thread": 1,
        "partly overlaps another call on its thread": 1,
        "ends before it starts": 1,
    }
