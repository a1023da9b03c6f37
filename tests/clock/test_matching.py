"""What matched operations and messages show of the clocks."""

from __future__ import annotations

import numpy as np
import pytest

from nsys2prv_ng.clock.matches import NEVER_ENTERS, NEVER_LEAVES, Matches, match_evidence
from nsys2prv_ng.operations import parts as kinds
from nsys2prv_ng.operations.parts import ANY_SIZE, Evidence, Messages
from tests.operations.made import MS, table


def parts(matches: Matches) -> list[list[tuple[int, int, int]]]:
    rows = list(zip(matches.domain.tolist(), matches.enter.tolist(), matches.leave.tolist(), strict=True))
    return [rows[low:high] for low, high in zip(matches.first[:-1], matches.first[1:], strict=True)]


def test_who_waits_for_whom() -> None:
    def of_rank(rank: int) -> Evidence:
        is_root = rank == 0
        return Evidence(
            [
                table(
                    [
                        ("w", "all", 8, 0, 10 + rank, 20, kinds.SYNCHRONISING, False),
                        ("w", "from", 8, 0, 30 + rank, 40, kinds.FROM_ROOT, is_root),
                        ("w", "to", 8, 0, 50 + rank, 60, kinds.TO_ROOT, is_root),
                        ("w", "some", 8, 0, 70 + rank, 80, kinds.OTHER, False),
                    ]
                )
            ]
        )

    _, matches = match_evidence([of_rank(0), of_rank(1)], [0, 1], [0, 1000])
    assert parts(matches) == [
        [(0, 10, 20), (1, 1011, 1020)],
        [(0, 30, NEVER_LEAVES), (1, NEVER_ENTERS, 1040)],
        [(0, NEVER_ENTERS, 60), (1, 1051, NEVER_LEAVES)],
        [(0, NEVER_ENTERS, NEVER_LEAVES), (1, NEVER_ENTERS, NEVER_LEAVES)],
    ]
    assert matches.fits.tolist() == [True, False, False, False]


def test_communicators_are_matched_apart() -> None:
    """Names mean the same in all reports whatever their order; operations of one domain show nothing."""
    one = table(
        [
            ("b", "x", 8, 0, 0, 5, kinds.SYNCHRONISING, False),
            ("a", "x", 8, 0, 6, 9, kinds.SYNCHRONISING, False),
            ("own", "x", 8, 0, 10, 12, kinds.SYNCHRONISING, False),
            ("own", "x", 8, 1, 10, 12, kinds.SYNCHRONISING, False),
        ]
    )
    other = table([("a", "x", 8, 0, 7, 10, kinds.SYNCHRONISING, False)])
    third = table([("b", "x", 8, 0, 1, 4, kinds.SYNCHRONISING, False)])
    _, matches = match_evidence([Evidence([one]), Evidence([other]), Evidence([third])], [0, 1, 2], [0, 0, 0])
    assert sorted(parts(matches)) == [[(0, 0, 5), (2, 1, 4)], [(0, 6, 9), (1, 7, 10)]]


def test_unknown_communicators_prove_nothing() -> None:
    rows = [("?", "x", ANY_SIZE, 0, i * MS, i * MS + 100, kinds.SYNCHRONISING, False) for i in range(5)]
    evidence = Evidence([table(rows, known=False)])
    _, matches = match_evidence([evidence, evidence], [0, 1], [0, 0])
    assert len(matches) == 5 and matches.fits.all()
    assert set(matches.enter.tolist()) == {NEVER_ENTERS}


def test_messages_of_channels_that_are_complete() -> None:
    def messages(channels: list[str], rows: list[tuple[int, bool, int, int]]) -> Evidence:
        channel, is_send, order, time = (np.array(column) for column in zip(*rows, strict=True))
        forward, size = np.ones(len(channels), np.bool_), np.full(time.size, 8)
        return Evidence(messages=[Messages(channels, channels, forward, channel, is_send, order, time, time, size)])

    sender = messages(["c", "d"], [(0, True, 5, 5), (0, True, 1, 1), (1, True, 2, 2), (1, True, 3, 3)])
    receiver = messages(["d", "c"], [(1, False, 0, 4), (1, False, 6, 9), (0, False, 2, 8)])
    _, matches = match_evidence([sender, receiver], [0, 1], [0, 100])
    # d has two sends and one receive.
    assert parts(matches) == [
        [(0, 1, NEVER_LEAVES), (1, NEVER_ENTERS, 104)],
        [(0, 5, NEVER_LEAVES), (1, NEVER_ENTERS, 109)],
    ]
    assert not matches.fits.any()


@pytest.mark.parametrize("evidence", [[], [Evidence()], [Evidence(), Evidence()]])
def test_nothing_to_match(evidence: list[Evidence]) -> None:
    _, matches = match_evidence(evidence, list(range(len(evidence))), [0] * len(evidence))
    assert len(matches) == 0 and matches.domain.size == 0
