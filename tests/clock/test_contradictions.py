"""Reports of one host whose clocks differ: differences are planted in samples, which have one physical clock."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.runtime.progress import Progress

LATE = "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + {}"
UNKNOWN = "DROP TABLE TARGET_INFO_SESSION_START_TIME"
CANNOT = "cannot have one clock"


def place(
    samples: Path, folder: Path, changes: Mapping[int, str], name: str = "ddp-2x2", host: str = "", align: str = "auto"
) -> tuple[list[str], list[float], list[str]]:
    """Change reports by rank; return the node of each, how much its clock was corrected (ns), and warnings."""
    reports = [folder / f"rank{rank}.sqlite" for rank in range(4)]
    for rank, report in enumerate(reports):
        shutil.copyfile(samples / f"{name}.rank{rank}.sqlite", report)
        with closing(sqlite3.connect(report)) as database, database:
            if host:
                database.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE name = 'Hostname'", (host,))
            database.executescript(changes.get(rank, ""))
    with open_job(reports, folder, ReadOptions(align=align), Progress()) as job:
        order = [next(r for r in job.reports if r.path == path) for path in reports]
        nodes = [job.alignment.nodes[report.node] for report in order]
        return [n.name for n in nodes], [n.correction.offset for n in nodes], list(job.warnings)


@pytest.mark.parametrize(("name", "host"), [("ddp-2x2", ""), ("ddp-2x2", "localhost"), ("mpi-4", "")])
def test_reports_of_one_clock_stay_on_their_node(samples: Path, tmp_path: Path, name: str, host: str) -> None:
    names, _, warnings = place(samples, tmp_path, {}, name, host)
    assert len(set(names)) == (2 if name == "ddp-2x2" and not host else 1)
    assert not any(CANNOT in warning for warning in warnings)


@pytest.mark.parametrize("by", [5_000_000, -40_000_000])
def test_two_machines_with_one_name(samples: Path, tmp_path: Path, by: int) -> None:
    """The clocks of ranks 1 and 3 are ahead."""
    names, corrected, warnings = place(samples, tmp_path, dict.fromkeys((1, 3), LATE.format(by)), host="localhost")
    assert names[0] == names[2] != names[1] == names[3]
    assert set(names) == {"localhost", "localhost (2)"}
    assert corrected[0] - corrected[1] == pytest.approx(by, abs=100_000)
    assert sum(CANNOT in warning for warning in warnings) == 1


def test_a_clock_that_was_set_between_captures(samples: Path, tmp_path: Path) -> None:
    names, corrected, warnings = place(samples, tmp_path, {1: LATE.format(50_000_000)})
    assert {*names[:2]} == {"gpunode01", "gpunode01 (2)"} and names[2:] == ["gpunode02"] * 2
    assert corrected[0] - corrected[1] == pytest.approx(50_000_000, abs=100_000)
    assert any("gpunode01" in warning and CANNOT in warning for warning in warnings)


def test_a_report_that_does_not_say_when(samples: Path, tmp_path: Path) -> None:
    """Its time 0 is that of the earliest report, which started at another time."""
    starts = []
    for rank in range(4):
        with closing(sqlite3.connect(samples / f"ddp-2x2.rank{rank}.sqlite")) as database:
            starts += database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
    names, corrected, _ = place(samples, tmp_path, {0: UNKNOWN})
    assert names[0] != names[1]
    assert corrected[0] - corrected[1] == pytest.approx(starts[0] - min(starts[1:]), abs=100_000)


def test_times_that_the_user_does_not_want_aligned(samples: Path, tmp_path: Path) -> None:
    names, corrected, _ = place(samples, tmp_path, {1: LATE.format(50_000_000)}, align="none")
    assert names[0] == names[1]
    assert not any(corrected)


BOOTED = (
    "ALTER TABLE TARGET_INFO_SESSION_START_TIME ADD COLUMN systemClockNs INTEGER;"
    "UPDATE TARGET_INFO_SESSION_START_TIME SET systemClockNs = utcEpochNs - 1700000000000000000 + {}"
)


def test_machines_with_one_name_that_booted_apart(samples: Path, tmp_path: Path) -> None:
    """Their UTC is right, so the distance since their boots must not replace it."""
    changes = {rank: BOOTED.format(500_000_000 * (rank % 2)) for rank in range(4)}
    names, corrected, _ = place(samples, tmp_path, changes, host="localhost")
    assert names[0] == names[2] != names[1] == names[3]
    assert corrected[0] - corrected[1] == pytest.approx(0, abs=100_000)
