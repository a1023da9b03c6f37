"""Who waits for whom in collectives of MPI, compared with plain SQL and loops over the calls of four ranks."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from nsys2prv_ng.analysis.waits import rules
from nsys2prv_ng.analysis.waits.waits import find_waits
from tests.analysis.waits.test_waits import opened, ranks_of

FROM_ROOT, TO_ROOT = {"MPI_Bcast", "MPI_Scatter"}, {"MPI_Reduce", "MPI_Gather"}


class Call(NamedTuple):
    rank: int
    begin: int
    end: int
    name: str
    is_root: bool


def read_collectives(reports: list[Path]) -> dict[tuple[str, int], list[Call]]:
    """Return the calls (UTC, ns) of each operation: the k-th of a communicator on each of its ranks."""
    operations: dict[tuple[str, int], list[Call]] = defaultdict(list)
    for rank, report in enumerate(reports):
        number: dict[str, int] = defaultdict(int)
        with closing(sqlite3.connect(report)) as database:
            (utc,) = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
            rows = database.execute(
                """SELECT e.start, e."end", s.value, c.size, c.groupRoot, c.groupRootUid, c.localRank, e.rootRank
                FROM MPI_COLLECTIVES_EVENTS e JOIN StringIds s ON s.id = e.textId
                JOIN MPI_COMMUNICATORS c ON c.commHandle = e.commHandle
                WHERE s.value NOT LIKE 'MPI_File%' ORDER BY e.start"""
            ).fetchall()
        for begin, end, name, size, group, uid, local, root in rows:
            communicator = f"{group} {uid} {size}"
            call = Call(rank, utc + begin, utc + end, name, root == local)
            operations[communicator, number[communicator]].append(call)
            number[communicator] += 1
    return operations


def find_truth(calls: list[Call]) -> list[tuple[int, int, int, int, int]]:
    """Return rank, begin, end, end of waiting, and the rank waited for (-1) of the calls of one operation."""
    name = calls[0].name
    assert {call.name for call in calls} == {name}
    roots = [call for call in calls if call.is_root]
    if name in FROM_ROOT:
        (release,) = roots
        waiting = [call for call in calls if call != release]
    elif name in TO_ROOT:
        release = min((call for call in calls if not call.is_root), key=lambda call: call.begin)
        waiting = roots
    else:
        release = max(calls, key=lambda call: call.begin)
        waiting = [call for call in calls if call != release]
    truth = []
    for call in calls:
        until, culprit = call.begin, -1
        if call in waiting and call.begin < release.begin:
            assert call.end >= release.begin, "it synchronised"
            until, culprit = release.begin, release.rank
        truth.append((call.rank, call.begin, call.end, until, culprit))
    return truth


def test_collectives_of_mpi_to_the_nanosecond(samples: Path, tmp_path: Path) -> None:
    reports = [samples / f"mpi-4.rank{rank}.sqlite" for rank in range(4)]
    expected = [row for calls in read_collectives(reports).values() for row in find_truth(calls)]
    assert len(expected) == 4 * 56
    with opened(reports, tmp_path) as job:
        waits = find_waits(job)
        base = job.alignment.utc_base
        at = waits.is_mpi & (waits.operation >= 0)
        columns = (waits.begin + base, waits.end + base, waits.until + base)
        got = list(
            zip(
                ranks_of(job, waits.row)[at].tolist(),
                *(column[at].tolist() for column in columns),
                ranks_of(job, waits.culprit)[at].tolist(),
                strict=True,
            )
        )
    assert (waits.verdict == rules.SPLIT).all()
    assert sorted(got) == sorted(expected)
    assert sum(until > begin for _, begin, _, until, _ in expected) > 50
