"""The line on stragglers: which ranks count, what they cost, why they were late, and whose delay they inherited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.summary.answer.answer import answer
from nsys2prv_ng.summary.answer.case import Case
from nsys2prv_ng.summary.answer.stragglers import describe_stragglers, find_stragglers
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.verdict import Verdict
from nsys2prv_ng.summary.waits.numbers import Excess, LateCost, WaitNumbers
from tests.summary.made_summary import make_losses, make_rank, make_summary
from tests.summary.made_waits import DEPENDENCY, DEVICE, LAUNCH, MS, NO_MPI, S, cost_of, culprit_of, rank_of, waits_of

JOB = replace(make_summary(None), duration_ns=10 * S)
"""A job of 10 s. Of two ranks, 2 % are 400 ms, and 10 % are 2 s."""


def judge(waits: WaitNumbers, job: JobSummary = JOB) -> tuple[Verdict, list[str]]:
    """The verdict, and its lines on stragglers."""
    verdict = answer(replace(job, waits=waits))
    return verdict, [line.text for line in verdict.statements if line.label == "STRAGGLER"]


# ---- which ranks -----------------------------------------------------------------------------------------------------


def test_a_straggler_costs_more_than_2_percent_of_the_time_of_all_ranks() -> None:
    assert judge(waits_of(rank_of(0, 400 * MS), rank_of(1, 0)))[1] == []
    verdict, [line] = judge(waits_of(rank_of(0, 401 * MS), rank_of(1, 0)))
    assert [(each.rank, each.caused_wait_ns) for each in verdict.stragglers] == [(0, 401 * MS)]
    assert line == ("rank 0, minor: cost the other ranks 401 ms in total (2.0% of rank time)")
    assert judge(waits_of(rank_of(0, 5 * S)))[1] == [], "a task alone keeps no other waiting"
    cut = replace(JOB, windows_ns=[(0, S), (2 * S, 3 * S)])
    assert judge(waits_of(rank_of(0, 80 * MS), rank_of(1, 0)), cut)[1] == []
    assert len(judge(waits_of(rank_of(0, 81 * MS), rank_of(1, 0)), cut)[1]) == 1


@pytest.mark.parametrize(("ns", "minor"), [(2 * S - 1, True), (2 * S, False)])
def test_a_straggler_below_10_percent_is_minor(ns: int, minor: bool) -> None:
    _, [line] = judge(waits_of(rank_of(0, ns), rank_of(1, 0)))
    assert line.startswith("rank 0, minor: " if minor else "rank 0: ")


def test_the_worst_is_described_and_the_others_are_counted() -> None:
    """Of five ranks, 2 % are 1 s: the rank that costs that much is none."""
    verdict, [line] = judge(waits_of(*(rank_of(n, (n + 1) * S) for n in range(5))))
    assert [each.rank for each in verdict.stragglers] == [4, 3, 2, 1]
    assert line == ("rank 4: cost the other ranks 5.00 s in total (10.0% of rank time); 3 more")


def test_collectives_are_those_of_the_rank() -> None:
    """Of the 160 collectives of the job it takes part in 40."""
    rank = replace(rank_of(0, 7 * S, 30), collectives=40)
    assert judge(waits_of(rank, rank_of(1, 0)))[1][0].startswith("rank 0: last in 30 of 40 collectives, ")


@pytest.mark.parametrize(("last", "is_shown"), [(80, True), (79, False)])
def test_a_small_number_of_collectives_is_not_shown(last: int, is_shown: bool) -> None:
    """It would hide what a rank costs in messages, or in a few long waits."""
    [line] = judge(waits_of(rank_of(0, 7 * S, last), rank_of(1, 0)))[1]
    assert ("last in 80 of 160" in line) == is_shown and ("last in" in line) == is_shown


def test_nccl_mpi_and_messages_add_up() -> None:
    mpi = replace(NO_MPI, collectives=18, last=7, caused_wait_ns=2 * S)
    verdict, [line] = judge(waits_of(rank_of(0, S, 90, mpi), rank_of(1, 0), mpi=20))
    assert verdict.stragglers[0].caused_wait_ns == 3 * S
    assert line == "rank 0: last in 97 of 178 collectives, cost the other ranks 3.00 s in total (15.0% of rank time)"
    rank = replace(rank_of(0, S, 0), caused_in_messages_ns=S)
    [line] = judge(waits_of(rank, rank_of(1, 0)))[1]
    assert line == "rank 0, minor: cost the other ranks 1.00 s in total (5.0% of rank time)"


def test_a_rank_that_is_not_selected() -> None:
    costs = [cost_of(rank, "not selected", ns) for rank, ns in ((2, S), (3, 2 * S), (2, 2 * S), (1, 9 * S))]
    waits = waits_of(rank_of(0, 0), rank_of(1, 0), costs=costs)
    chosen = replace(JOB, chosen=["ranks"])
    assert judge(waits, chosen)[1] == ["rank 2 is not selected, and cost the selected ranks 3.00 s in total"]
    assert judge(replace(waits, costs=[cost_of(3, "not selected", 400 * MS)]), chosen)[1] == []
    assert judge(waits, replace(JOB, chosen=["time"]))[1] == []


# ---- why -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("costs", "says"),
    [
        ([cost_of(0, LAUNCH, 7 * S, "data loading")], "; 7.00 s in `data loading` (code outside calls)"),
        ([cost_of(0, "host-bound late call", 7 * S, "step", "cudaMalloc")], "; 7.00 s in `step` (`cudaMalloc`)"),
        (
            [cost_of(0, LAUNCH, 4 * S), cost_of(0, DEVICE, 3 * S)],
            "; 4.00 s outside NVTX ranges (code outside calls), 3.00 s late predecessor on the stream",
        ),
        (
            [
                cost_of(0, LAUNCH, 2 * S, "step"),
                cost_of(0, LAUNCH, S, "step", "free"),
                cost_of(0, LAUNCH, 4 * S, "load"),
            ],
            "; 4.00 s in `load` (code outside calls), 3.00 s in `step` (code outside calls)",
        ),
        # Half of it is in no call: neither is most.
        ([cost_of(0, LAUNCH, 3 * S, "step"), cost_of(0, LAUNCH, 3 * S, "step", "free")], "; 6.00 s in `step`"),
        # None of many is most of it.
        (
            [cost_of(0, LAUNCH, S + n * 10 * MS, f"layer {n}") for n in range(6)],
            "; 6.15 s on the host, spread over 6 ranges (the largest: 1.05 s in `layer 5` (code outside calls))",
        ),
        (
            [cost_of(0, LAUNCH, 63 * S // 10 + 1, "load"), cost_of(0, LAUNCH, 7 * S // 10 - 1, "step")],
            "; 6.30 s in `load` (code outside calls)",
        ),
        ([cost_of(0, DEVICE, 7 * S, "forward", operation="gemm")], "; 7.00 s late predecessor on the stream"),
        (
            [
                cost_of(0, DEPENDENCY, 3 * S, operation="copy"),
                cost_of(0, DEPENDENCY, 2 * S, "a"),
                cost_of(0, DEVICE, 2 * S),
            ],
            "; 5.00 s late dependency on another stream, 2.00 s late predecessor on the stream",
        ),
        ([cost_of(0, "not selected", 7 * S)], ""),
        ([cost_of(0, "unknown", 7 * S)], ""),
        ([cost_of(1, LAUNCH, 7 * S, "data loading")], ""),
    ],
)
def test_causes_in_words(costs: list[LateCost], says: str) -> None:
    assert judge(waits_of(rank_of(0, 7 * S, 155), rank_of(1, 0, 5), costs=costs))[1] == [
        f"rank 0: last in 155 of 160 collectives, cost the other ranks 7.00 s in total (35.0% of rank time){says}"
    ]


@pytest.mark.parametrize(
    ("origins", "inherited", "says"),
    [
        ([(None, 7)], 0, ""),
        ([(2, 7)], 7, "; 7.00 s of it inherited from rank 2"),
        # 5 s in all, of which 3 s are rank 2's.
        ([(2, 1), (3, 2), (2, 2), (None, 2)], 5, "; 3.00 s of it inherited from rank 2"),
        ([(2, 0.6), (None, 6.4)], 0.6, ""),
        ([(2, 0.7), (None, 6.3)], 0.7, "; 700 ms of it inherited from rank 2"),
    ],
)
def test_delay_that_a_rank_inherited(origins: list[tuple[int | None, float]], inherited: float, says: str) -> None:
    """It is said if it is at least a tenth of what the rank costs."""
    culprits = [culprit_of(0, DEVICE, round(ns * S), origin=origin) for origin, ns in origins]
    culprits.append(culprit_of(1, DEVICE, 7 * S, origin=0))
    verdict, [line] = judge(waits_of(rank_of(0, 7 * S), rank_of(1, 0), culprits=culprits))
    assert verdict.stragglers[0].inherited_ns == round(inherited * S)
    assert line.partition(" of rank time)")[2] == says


# ---- against plain sums ----------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """Waiting for a rank: why, in which range and call, and how long (ms)."""

    rank: int
    reason: str
    range: str
    call: str
    ms: int


PIECES = st.builds(
    Piece,
    st.integers(0, 2),
    st.sampled_from([LAUNCH, "host-bound late call", DEVICE]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["", "cudaFree"]),
    st.sampled_from([1, 5, 60, 300, 900]),
)


@given(st.lists(PIECES, min_size=1, max_size=8))
def test_stragglers_and_reasons_are_plain_sums(pieces: Sequence[Piece]) -> None:
    caused, costs = Counter[int](), []
    reasons: dict[int, Counter[tuple[str, str]]] = {rank: Counter() for rank in range(3)}
    for rank, reason, range_, call, ms in pieces:
        caused[rank] += ms * MS
        costs.append(cost_of(rank, reason, ms * MS, range_, call))
        if reason != DEVICE:
            reasons[rank][range_, call] += ms * MS
    verdict, lines = judge(waits_of(*(rank_of(rank, caused[rank]) for rank in range(3)), costs=costs))
    late = [rank for rank in range(3) if 50 * caused[rank] > 3 * 10 * S]
    assert [each.rank for each in verdict.stragglers] == sorted(late, key=lambda rank: (-caused[rank], rank))
    for each in verdict.stragglers:
        assert each.rank is not None and each.caused_wait_ns == caused[each.rank]
        assert {(reason.range, reason.call): reason.ns for reason in each.reasons} == reasons[each.rank]
        times = [reason.ns for reason in each.reasons]
        assert times == sorted(times, reverse=True)
    assert len(lines) == min(len(late), 1)


@given(st.lists(PIECES, min_size=1, max_size=8))
def test_one_rank_is_the_bottleneck_if_it_causes_more_than_half_of_the_wait(pieces: Sequence[Piece]) -> None:
    caused = Counter[int]()
    for piece in pieces:
        caused[piece.rank] += piece.ms * MS
    whole = sum(caused.values())
    ranks = [make_rank(rank, whole - caused[rank], caused[rank]) for rank in range(3)]
    costs = [cost_of(piece.rank, piece.reason, piece.ms * MS, piece.range, piece.call) for piece in pieces]
    verdict = answer(make_summary(make_losses(3, compute=40, waiting=50), waits=waits_of(*ranks, costs=costs)))
    worst = max(caused, key=lambda rank: caused[rank])
    is_one = 2 * caused[worst] > whole
    assert verdict.bottleneck == ("wait for a straggler" if is_one else "imbalance") and verdict.share == 0.5
    named = [(place.name, place.ns) for place in verdict.where if place.kind == "rank"]
    tenths = [(f"rank {rank}", ns) for rank, ns in caused.items() if 10 * ns > whole]
    assert sorted(named) == sorted([(f"rank {worst}", caused[worst])] if is_one else tenths)


@pytest.mark.parametrize(
    ("rank", "excess", "says"),
    [
        (0, [("range", 3 * S, S)], "; it is 3.00 s in `load`, the other 1.00 s"),
        (0, [("range", 3 * S, S + S // 4 + 1)], "; 7.00 s in `backward`"),  # less than a quarter of the wait
        (0, [("range", 6 * S, 4 * S)], "; 7.00 s in `backward`"),  # less than half as long again
        (0, [("call", 3 * S, 0)], "; 7.00 s in `backward`"),
        (0, [("range", 3 * S, 0), ("range", 5 * S, S)], "; it is 5.00 s in `load`, the other 1.00 s"),
        (1, [("range", 3 * S, S)], "; 7.00 s in `backward`"),  # of the rank that others waited for longest
    ],
)
def test_a_range_that_takes_one_rank_longer(rank: int, excess: list[tuple[str, int, int]], says: str) -> None:
    """Where the host was when it was late says less than what it does longer than the others."""
    found = [Excess(kind=kind, domain="", name="load", ns=ns, others_ns=others_ns) for kind, ns, others_ns in excess]
    ranks = [rank_of(n, 7 * S if n == 0 else (0 if rank == 0 else 8 * S)) for n in range(2)]
    waits = waits_of(*ranks, costs=[cost_of(n, LAUNCH, 7 * S, "backward") for n in range(2)])
    summary = replace(JOB, waits=replace(waits, excess=found))
    case = Case(summary)
    stragglers = [each for each in find_stragglers(case) if each.rank == 0]
    assert says in describe_stragglers(case, stragglers)[0]
