"""Which rows are one operation, compared with programs that know it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nsys2prv_ng.clock.matches import NEVER_ENTERS, NEVER_LEAVES, Matches, match_rows
from nsys2prv_ng.operations import parts as kinds
from nsys2prv_ng.operations.lag import Sequence, find_lag
from nsys2prv_ng.operations.parts import ANY_SIZE, Collectives, Evidence, Messages
from tests.examples import examples

MS = 10**6


def program(steps: int, period: int, seed: int) -> Sequence:
    """The same operations in each step; steps do not take the same time."""
    random = np.random.default_rng(seed)
    operation = np.tile(random.integers(0, 3, period), steps).astype(np.int64)
    size = np.tile(random.choice([8, 4096, 1 << 20], period), steps).astype(np.int64)
    pause = random.normal(5 * MS, MS / 2, steps * period)
    return Sequence(operation, size, np.cumsum(np.maximum(pause, MS)).astype(np.int64))


def seen(whole: Sequence, low: int, high: int, offset: int, drift: float, seed: int) -> Sequence:
    """What one rank recorded of it, by its own clock."""
    random = np.random.default_rng(seed)
    end = whole.end[low:high] + offset + drift * whole.end[low:high] + np.abs(random.normal(0, 5e3, high - low))
    return Sequence(whole.operation[low:high], whole.bytes[low:high], np.rint(end).astype(np.int64))


@settings(deadline=None, max_examples=examples(150))
@given(
    steps=st.integers(8, 60),
    period=st.integers(1, 6),
    cut=st.tuples(st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0, 0.3)),
    offset=st.integers(-10 * MS, 10 * MS),
    drift=st.floats(-20e-6, 20e-6),
    seed=st.integers(0, 10**6),
)
def test_ranges_that_start_and_stop_at_different_operations(
    steps: int, period: int, cut: tuple[float, float, float, float], offset: int, drift: float, seed: int
) -> None:
    whole = program(steps, period, seed)
    n = whole.end.size
    low, other_low = int(cut[0] * n), int(cut[1] * n)
    high, other_high = n - int(cut[2] * n), n - int(cut[3] * n)
    overlap = min(high, other_high) - max(low, other_low)
    assume(overlap >= 8 and overlap > 0.5 * min(high - low, other_high - other_low))
    one = seen(whole, low, high, 0, 0.0, seed + 1)
    other = seen(whole, other_low, other_high, offset, drift, seed + 2)
    found = find_lag(one, other)
    assert found is not None
    assert found.lag == other_low - low
    assert (found.first, found.last) == (max(low, other_low) - low, min(high, other_high) - low)


def test_conflicting_sizes_reject_a_lag() -> None:
    """By time alone one operation later fits better; sizes tell that it is another."""
    end = np.arange(10, dtype=np.int64) * MS
    size = 8 << (np.arange(10, dtype=np.int64))
    one = Sequence(np.zeros(10, np.int64), size, end)
    other = Sequence(np.zeros(10, np.int64), size, end + MS)
    found = find_lag(one, other)
    assert found is not None and found.lag == 0
    unlike = Sequence(np.zeros(10, np.int64), size + 1, end)
    assert find_lag(one, unlike) is None
    unknown = Sequence(np.zeros(10, np.int64), np.full(10, ANY_SIZE), end)
    assert find_lag(one, unknown) is not None


def test_what_is_seconds_apart_is_another_part_of_the_program() -> None:
    whole = program(10, 3, 1)
    later = Sequence(whole.operation, whole.bytes, whole.end + 10 * 10**9)
    assert find_lag(whole, later) is None


def test_lost_operations_leave_the_longest_run() -> None:
    whole = program(40, 4, 3)
    operation = np.arange(whole.end.size, dtype=np.int64) % 37  # no period that a loss could hide in
    whole = Sequence(operation, whole.bytes, whole.end)
    kept = np.r_[0:100, 103:160]
    other = Sequence(*(column[kept] for column in whole))
    found = find_lag(whole, other)
    assert found is not None
    assert (found.lag, found.first, found.last) == (0, 0, 100)


# ---- all reports -----------------------------------------------------------------------------------------------------


def table(rows: list[tuple[str, str, int, int, int, int, int, bool]], *, known: bool = True) -> Collectives:
    """From rows (communicator, operation, bytes, member, begin, end, kind, is root)."""
    communicators, operations = (sorted({row[i] for row in rows}) for i in (0, 1))  # type: ignore[type-var]
    numbers = np.array([row[2:7] for row in rows], np.int64).T
    return Collectives(
        communicators,
        operations,
        np.array([communicators.index(row[0]) for row in rows]),
        np.array([operations.index(row[1]) for row in rows]),
        *numbers,
        np.array([row[7] for row in rows]),
        np.full(len(rows), known),
        np.zeros(len(rows), np.int64),
        [0] * len(communicators),
    )


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

    matches = match_rows([of_rank(0), of_rank(1)], [0, 1], [0, 1000])
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
    matches = match_rows([Evidence([one]), Evidence([other]), Evidence([third])], [0, 1, 2], [0, 0, 0])
    assert sorted(parts(matches)) == [[(0, 0, 5), (2, 1, 4)], [(0, 6, 9), (1, 7, 10)]]


def test_unknown_communicators_prove_nothing() -> None:
    rows = [("?", "x", ANY_SIZE, 0, i * MS, i * MS + 100, kinds.SYNCHRONISING, False) for i in range(5)]
    evidence = Evidence([table(rows, known=False)])
    matches = match_rows([evidence, evidence], [0, 1], [0, 0])
    assert len(matches) == 5 and matches.fits.all()
    assert set(matches.enter.tolist()) == {NEVER_ENTERS}


def test_messages_of_channels_that_are_complete() -> None:
    def messages(channels: list[str], rows: list[tuple[int, bool, int, int]]) -> Evidence:
        channel, is_send, order, time = (np.array(column) for column in zip(*rows, strict=True))
        return Evidence(messages=[Messages(channels, channel, is_send, order, time)])

    sender = messages(["c", "d"], [(0, True, 5, 5), (0, True, 1, 1), (1, True, 2, 2), (1, True, 3, 3)])
    receiver = messages(["d", "c"], [(1, False, 0, 4), (1, False, 6, 9), (0, False, 2, 8)])
    matches = match_rows([sender, receiver], [0, 1], [0, 100])
    # d has two sends and one receive.
    assert parts(matches) == [
        [(0, 1, NEVER_LEAVES), (1, NEVER_ENTERS, 104)],
        [(0, 5, NEVER_LEAVES), (1, NEVER_ENTERS, 109)],
    ]
    assert not matches.fits.any()


@pytest.mark.parametrize("evidence", [[], [Evidence()], [Evidence(), Evidence()]])
def test_nothing_to_match(evidence: list[Evidence]) -> None:
    matches = match_rows(evidence, list(range(len(evidence))), [0] * len(evidence))
    assert len(matches) == 0 and matches.domain.size == 0


def test_captures_that_follow_each_other() -> None:
    """Two capture ranges of two ranks: the later ones match each other, not the earlier ones."""
    whole = program(20, 2, 5)
    later = Sequence(whole.operation, whole.bytes, whole.end + 60 * 10**9)

    def rows(sequence: Sequence) -> Evidence:
        return Evidence(
            [
                table(
                    [
                        ("w", str(op), int(size), 0, int(end) - 10, int(end), kinds.SYNCHRONISING, False)
                        for op, size, end in zip(*(c.tolist() for c in sequence), strict=True)
                    ]
                )
            ]
        )

    matches = match_rows([rows(whole), rows(whole), rows(later), rows(later)], [0, 1, 0, 1], [0, 0, 0, 0])
    assert len(matches) == 80
    assert all(len(part) == 2 and part[0][2] == part[1][2] for part in parts(matches))
