"""What main threads do at a time in which several things hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.efficiency import efficiency_truth as plain
from tests.analysis.efficiency.efficiency_reports import ALL_TIME, check_window, make
from tests.translated import changed

pytestmark = pytest.mark.slow


def test_calls_of_cuda_within_mpi_are_mpi(tmp_path: Path, samples: Path) -> None:
    """As MPI makes them for buffers on GPUs."""
    within = """INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, "end", eventClass, globalTid, nameId, returnValue)
        SELECT m.start + 10, m."end" - 10, 0, m.globalTid, (SELECT nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME LIMIT 1), 0
        FROM MPI_COLLECTIVES_EVENTS m ORDER BY m."end" - m.start DESC LIMIT 5"""
    made = make(
        [changed(samples / "mpi-4.rank0.sqlite", tmp_path / "mpi-4.rank0.sqlite", [within])], selection=ALL_TIME
    )
    before = make([samples / "mpi-4.rank0.sqlite"], selection=ALL_TIME)
    assert made.found.whole.host == before.found.whole.host
    assert made.numbers is not None
    check_window(made.numbers, plain.measure_common(made.truth, [made.truth.capture]))
