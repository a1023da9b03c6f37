"""Which parts of ranks are one operation, compared with programs that know it."""

from __future__ import annotations

from nsys2prv_ng.operations.lag import Sequence
from nsys2prv_ng.operations.matching import Operations, match_collectives
from nsys2prv_ng.operations.parts import SYNCHRONISING, Collectives
from tests.operations.made import MS, program, table


def times(operations: Operations) -> list[list[tuple[int, int]]]:
    """Return (rank, end) of the parts of each operation."""
    rows = operations.table
    parts = [(int(rows.member[i]), int(rows.end[i])) for i in operations.part]
    return [parts[low:high] for low, high in zip(operations.first[:-1], operations.first[1:], strict=True)]


def test_captures_that_follow_each_other() -> None:
    """Two capture ranges of two ranks: the later ones match each other, not the earlier ones."""
    whole = program(20, 2, 5)
    later = Sequence(whole.operation, whole.bytes, whole.end + 60_000 * MS)

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
