"""Which parts of ranks are one operation, compared with programs that know it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.operations.lag import Sequence
from nsys2prv_ng.operations.matching import Operations, match_collectives
from nsys2prv_ng.operations.parts import COPIED, LOOSE, ORDERED, SYNCHRONISING, Collectives
from tests.examples import examples
from tests.operations.made import MS, program, table


def times(operations: Operations) -> list[list[tuple[int, int]]]:
    """Return (rank, end) of the parts of each operation."""
    rows = operations.table
    parts = [(int(rows.member[i]), int(rows.end[i])) for i in operations.part]
    return [parts[low:high] for low, high in zip(operations.first[:-1], operations.first[1:], strict=True)]


def test_captures_that_follow_each_other() -> None:
    """Two capture ranges of two ranks: the later ones match each other, not the earlier ones."""
    whole = program(20, 2, 5)
    later = Sequence(whole.operation, whole.size, whole.end + 60_000 * MS)

    def rows(sequence: Sequence) -> list[Collectives]:
        return [
            table(
                [
                    ("w", str(op), int(size), 0, int(end) - 10, int(end), SYNCHRONISING, False)
                    for op, size, end in zip(*(c.tolist() for c in sequence), strict=True)
                ]
            )
        ]

    captures = [(rows(whole), 0, 0), (rows(whole), 1, 0), (rows(later), 0, 0), (rows(later), 1, 0)]
    operations = times(match_collectives(captures))
    assert len(operations) == 80
    assert all(len(parts) == 2 and parts[0][1] == parts[1][1] for parts in operations)
    assert [sorted(rank for rank, _ in parts) for parts in operations] == 40 * [[0, 1]] + 40 * [[2, 3]]


@given(st.integers(0, 2**32))
@settings(max_examples=examples(50), deadline=None)
def test_ids_match_whatever_the_order_and_the_losses(seed: int) -> None:
    """Ranks run the operations in their own order, and some are lost: parts with one id are an operation."""
    random = np.random.default_rng(seed)
    reports, where = [], {}
    for rank in range(3):
        kept = random.permutation(20)[: random.integers(1, 20)]
        ends = np.sort(random.choice(10_000, kept.size, replace=False)) + 100
        rows = [("w", "x", 8, 0, int(end) - 50, int(end), SYNCHRONISING, False) for end in ends]
        where |= {(rank, int(end)): int(i) for end, i in zip(ends, kept, strict=True)}
        reports.append(([table(rows)._replace(ids=kept - 10)], rank, 0))
    ids = list(where.values())
    expected = sorted(sorted(place for place, i in where.items() if i == one) for one in set(ids) if ids.count(one) > 1)
    assert sorted(map(sorted, times(match_collectives(reports)))) == expected


# ---- brute force -----------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """What the reports of a small job hold, and which parts are one operation, by their begins."""

    reports: list[tuple[list[Collectives], int, int]]
    truth: set[frozenset[int]]


def run_job(random: np.random.Generator) -> Job:
    """Run a program on some ranks: communicators of some of them, reports of one rank or several, cut captures."""
    ranks = int(random.integers(2, 7))
    report_of_rank = np.sort(random.integers(0, ranks, ranks)) if random.random() < 0.5 else np.arange(ranks)
    _, report_of_rank = np.unique(report_of_rank, return_inverse=True)
    offsets = random.integers(-5 * MS, 5 * MS, ranks)  # clocks of the reports
    communicators = [
        np.sort(random.choice(ranks, int(random.integers(1, ranks + 1)), replace=False))
        for _ in range(int(random.integers(1, 4)))
    ]
    rows: list[list[tuple[str, str, int, int, int, int, int, bool]]] = [[] for _ in range(ranks)]
    parts: dict[int, list[int]] = {}
    now = np.zeros(ranks, np.int64)
    # Captures start and stop between any two operations: fewer than half of a sequence is lost.
    steps = int(random.integers(12, 40))
    first, last = random.integers(0, steps // 6 + 1, ranks), steps - random.integers(0, steps // 6 + 1, ranks)
    for step in range(steps):
        for number, members in enumerate(communicators):
            operation, kind = f"operation {step % 3}", int(random.integers(0, 4))
            size = int(random.integers(1, 1 << 20))
            now[members] += random.integers(2 * MS, 6 * MS, members.size)
            end = int(now[members].max()) + int(random.integers(1000, MS))
            for rank in members.tolist():
                begin = int(now[rank])
                now[rank] = end
                if not first[rank] <= step < last[rank]:
                    continue
                report = int(report_of_rank[rank])
                offset = int(offsets[report])
                rows[report].append((f"c{number}", operation, size, rank, begin + offset, end + offset, kind, False))
                parts.setdefault(step * 10 + number, []).append(begin + offset)
    reports = [(order(random, rows[i]), i, 0) for i in range(int(report_of_rank.max()) + 1)]
    return Job(reports, {frozenset(members) for members in parts.values() if len(members) > 1})


def order(random: np.random.Generator, rows: list[tuple[str, str, int, int, int, int, int, bool]]) -> list[Collectives]:
    """Return tables of the rows in any order, with ranks numbered within the report."""
    if not rows:
        return []
    shuffled = [rows[i] for i in random.permutation(len(rows))]
    known = sorted({row[3] for row in rows})
    return [table([(*row[:3], known.index(row[3]), *row[4:]) for row in shuffled])]  # type: ignore[misc]


def find_operations(operations: Operations) -> set[frozenset[int]]:
    """Return the begins of the parts of each operation: each is of one part of the job."""
    begins = operations.table.begin[operations.part].tolist()
    return {frozenset(begins[low:high]) for low, high in zip(operations.first[:-1], operations.first[1:], strict=True)}


@settings(deadline=None, max_examples=examples(120))
@given(seed=st.integers(0, 10**9))
def test_random_jobs(seed: int) -> None:
    """Each operation that two ranks recorded is found, with these parts and no others."""
    job = run_job(np.random.default_rng(seed))
    assert find_operations(match_collectives(job.reports)) == job.truth


@settings(deadline=None, max_examples=examples(60))
@given(seed=st.integers(0, 10**9))
def test_lost_operations_are_never_matched_with_others(seed: int) -> None:
    """Where a rank lost an operation, what is matched is right; sizes that all differ show which it was."""
    random = np.random.default_rng(seed)
    job = run_job(random)
    reports = []
    for tables, domain, offset in job.reports:
        thinned = []
        for rows in tables:
            kept = np.ones(rows.begin.size, np.bool_)
            kept[int(random.integers(0, kept.size))] = False
            columns: dict[str, Any] = {
                name: value[kept] for name, value in rows._asdict().items() if isinstance(value, np.ndarray)
            }
            thinned.append(rows._replace(**columns))
        reports.append((thinned, domain, offset))
    for operation in find_operations(match_collectives(reports)):
        assert any(operation <= truth for truth in job.truth)


def test_capture_ranges_of_one_process() -> None:
    """Two ranges of a process within a second are one rank: neither matches the other, nor do they count as two."""
    whole = program(12, 2, 7)

    def report(pid: int, late: int) -> list[Collectives]:
        rows = [
            ("w", str(op), int(size), 0, int(end) - 10 + late, int(end) + late, SYNCHRONISING, False)
            for op, size, end in zip(*(c.tolist() for c in whole), strict=True)
        ]
        return [table(rows)._replace(owners=[(pid, -1)])]

    captures = [(report(pid, late), domain, 0) for late in (0, 500 * MS) for domain, pid in enumerate((10, 11))]
    operations = match_collectives(captures)
    assert [sorted(rank for rank, _ in parts) for parts in times(operations)] == 24 * [[0, 1]] + 24 * [[2, 3]]
    assert operations.table.rank_of_member.tolist() == [0, 1, 0, 1]
    # The same process id on one node at one time is another process: one in another container.
    together = match_collectives([(report(10, 0), 0, 0), (report(10, 0), 0, 0)])
    assert together.table.rank_of_member.tolist() == [0, 1] and len(together) == 24


def test_what_is_loose_is_matched_with_nothing() -> None:
    rows = table([("w", "all", 8, 0, i * MS, i * MS + 10, LOOSE, False) for i in range(8)])
    operations = match_collectives([([rows], 0, 0), ([rows], 1, 0)])
    assert len(operations) == 0 and operations.table.begin.size == 16


def test_sequences_match_only_if_all_ranks_launch_the_same() -> None:
    """Operations of which only the order is known match if each rank has the same; copies never match."""

    def rows(member: int, names: str, kind: int = SYNCHRONISING) -> list[Collectives]:
        own = [(f"{ORDERED}stream 0", name, 0, member, i * 10, i * 10 + 5, kind, False) for i, name in enumerate(names)]
        return [table(own, known=False)]

    def count(*sequences: str) -> list[int]:
        found = match_collectives([(rows(0, names), 0, 0) for names in sequences])
        return np.diff(found.first).tolist()

    assert count("abcab", "abcab", "abcab") == [3] * 5
    assert count("abcab", "abcab", "abca") == count("abcab", "abcab", "abcba") == count("abcab") == []
    assert not len(match_collectives([(rows(0, "ab", COPIED), 0, 0), (rows(0, "ab", COPIED), 0, 0)]))
