"""What to look at first: the largest loss, and nothing is blamed that need not have half of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.bundled.presets import list_presets
from nsys2prv_ng.summary.numbers.efficiency import HostEfficiency, Losses
from nsys2prv_ng.summary.numbers.job import JobSummary, MemoryOperationNumbers, NcclNumbers
from nsys2prv_ng.summary.numbers.wait_reasons import DEVICE, LAUNCH, UNKNOWN
from nsys2prv_ng.summary.numbers.waits import LateCost, WaitNumbers
from nsys2prv_ng.summary.tables.efficiency import PARTS, WHOLE_GRAPHS
from nsys2prv_ng.summary.text import format_summary
from nsys2prv_ng.summary.verdicts import advice
from nsys2prv_ng.summary.verdicts.efficiency import describe_whole_graphs
from nsys2prv_ng.summary.verdicts.verdicts import list_verdicts
from tests.analysis.waits.waits_truth import find_truth
from tests.conftest import Unpacked
from tests.summary.made import IN_STEPS, summarize_reports
from tests.summary.made_summary import (
    MS,
    WINDOW,
    make_losses,
    make_rank,
    make_summary,
    make_waits,
    make_window,
)

EXPOSED = "Look first at communication that no compute hides: 40.0% of the GPUs' time in `step` 1 to 5 is lost as NCCL"
SHOWS_EXPOSED = ". The preset analysis/exposed_communication shows it"


def advise(summary: JobSummary) -> str:
    """The sentence; empty if there is none. It is the last of the verdicts of the text."""
    text = advice.advise(summary)
    if not text:
        assert "Look first" not in format_summary(summary)
        return ""
    assert list_verdicts(summary)[-1] == (text, [], "advice")
    paragraphs = [paragraph.splitlines() for paragraph in format_summary(summary, 1000).split("\n\n")[1:3]]
    assert text in [lines[-1] for lines in paragraphs]
    return text


# ---- each loss -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "says"),
    [
        (
            make_losses(compute=50, host=30, by_range={"data\nloading": 15, "": 15}),
            "Look first at the host: 30.0% of the GPUs' time in `step` 1 to 5 is lost as the host does not launch, "
            "15.0% while it was in `data loading`. The preset analysis/gpu-gaps shows it",
        ),
        (
            make_losses(1, compute=50, host=30, by_range={"": 20, "a": 10}),
            "Look first at the host: 30.0% of the GPU's time in `step` 1 to 5 is lost as the host does not launch, "
            "20.0% while it was outside NVTX ranges. The preset analysis/gpu-gaps shows it",
        ),
        (
            make_losses(compute=50, host=30, by_range={"a": 14, "b": 10, "": 6}),
            "Look first at the host: 30.0% of the GPUs' time in `step` 1 to 5 is lost as the host does not launch, "
            "14.0% while it was in `a` and 10.0% while it was in `b`. The "
            "preset analysis/gpu-gaps shows it",
        ),
        (
            make_losses(compute=80, waiting=20, by_class={"GEMM FP32": 45, "Reduction": 35}),
            "Look first at kernels: 2 GPUs compute 80.0% of `step` 1 to 5, 45.0% in class GEMM FP32. The preset "
            "analysis/kernel_classes shows it",
        ),
        (
            make_losses(1, compute=95, by_class={"not selected": 60, "Reduction": 35}),
            "Look first at kernels: 1 GPU computes 95.0% of `step` 1 to 5, 35.0% in class Reduction. The preset "
            "analysis/kernel_classes shows it",
        ),
        (
            make_losses(compute=95),
            "Look first at kernels: 2 GPUs compute 95.0% of `step` 1 to 5. The preset analysis/kernel_classes shows it",
        ),
        (
            make_losses(compute=79, waiting=4, moving=4, host=4, memory=4, graph=4, queued=1),
            "",
        ),
        (
            make_losses(compute=79, waiting=4, moving=4, host=4, memory=4, queued=5),
            "Look first at operations that begin late: 5.0% of the GPUs' time in `step` 1 to 5 is lost as operations "
            "that were launched before have not begun. The preset analysis/queue_delay shows it",
        ),
        (make_losses(compute=40, moving=40), f"{EXPOSED} moves data{SHOWS_EXPOSED}"),
        (
            make_losses(compute=40, not_split=40),
            f"{EXPOSED} waits or moves data; which of both is not known{SHOWS_EXPOSED}",
        ),
    ],
)
def test_the_largest_loss(losses: Losses, says: str) -> None:
    assert advise(make_summary(losses)) == says


def test_gpus_that_work_one_after_the_other_are_nothing_to_look_at() -> None:
    """Each is idle for most of the capture, of which the time in which any works is more than half."""
    losses = make_losses(compute=1, before_first=50, after_last=46, host=3)
    assert advise(make_summary(losses, in_steps=False)) == ""


@pytest.mark.parametrize("devices", [1, 2])
def test_the_time_in_which_gpus_work_is_named_once(devices: int) -> None:
    """Not "of the GPUs' time in the time in which GPUs work"."""
    summary = make_summary(make_losses(devices, compute=1, before_first=99), in_steps=False)
    assert summary.efficiency is not None
    work = make_window(make_losses(devices, compute=20, whole_graph=30, host=50))
    summary = replace(summary, efficiency=replace(summary.efficiency, in_work=work, work_ns=(0, WINDOW)))
    says = "Look first at the host: 50.0% of the time in which GPUs work is lost as the host does not launch. "
    assert advise(summary).startswith(says)
    note = describe_whole_graphs(summary.efficiency, None)
    assert note.startswith("30.0% of the time in which GPUs work is in CUDA graphs that nsys traced as a whole. ")


OF_THE_CAPTURE = ["cut_ns", "before_first_ns", "after_last_ns", "not_captured_ns"]
"""Where the capture or the chosen time ends."""
OF_THE_PROGRAM = [part for part in PARTS if part not in (*OF_THE_CAPTURE, WHOLE_GRAPHS)]


@pytest.mark.parametrize("part", OF_THE_CAPTURE)
def test_the_limits_of_the_time_are_nothing_to_look_at(part: str) -> None:
    losses = make_losses(**{"compute": 20, part[:-3]: 60, "moving": 20})
    assert advise(make_summary(losses)) == f"{EXPOSED} moves data{SHOWS_EXPOSED}".replace("40.0%", "20.0%")
    assert advise(make_summary(make_losses(**{"compute": 40, part[:-3]: 60}))) == ""


@pytest.mark.parametrize("part", OF_THE_PROGRAM)
def test_every_part_has_its_words(part: str) -> None:
    text = advise(make_summary(make_losses(**{"compute": 40, part[:-3]: 60}), in_steps=False))
    assert (
        text.startswith("Look first at ")
        and f": 60.0% of the GPUs' time in the capture is lost {PARTS[part][1]}" in text
    )


@pytest.mark.parametrize(("whole", "says"), [(29, EXPOSED), (31, EXPOSED.replace("Look", "Of what is known, look"))])
def test_graphs_as_a_whole_may_lose_more(whole: int, says: str) -> None:
    losses = make_losses(compute=70 - whole, whole_graph=whole, moving=30)
    says = says.replace("40.0%", "30.0%")
    assert advise(make_summary(losses)).startswith(says)
    assert advise(make_summary(make_losses(compute=40, whole_graph=60))) == ""


def test_every_preset_exists() -> None:
    names = {preset.name for preset in list_presets()}
    shown = {preset for _, preset in advice._PLACES.values() if preset}
    assert shown <= names and set(advice._PLACES) == set(OF_THE_PROGRAM)
    losses = [make_losses(compute=90), *(make_losses(**{"compute": 40, part[:-3]: 60}) for part in OF_THE_PROGRAM)]
    hosts = [
        HostEfficiency(
            parallel=0.5,
            mpi_parallel=0.5,
            mpi_load_balance=0.5,
            mpi_communication=1.0,
            offload=1.0,
            mpi_balance_in_nodes=1.0,
            mpi_balance_of_nodes=1.0,
        ),
        HostEfficiency(
            parallel=0.5,
            mpi_parallel=0.5,
            mpi_load_balance=1.0,
            mpi_communication=0.5,
            offload=1.0,
            mpi_balance_in_nodes=1.0,
            mpi_balance_of_nodes=1.0,
        ),
    ]
    texts = [advise(make_summary(each)) for each in losses] + [advise(make_summary(None, host)) for host in hosts]
    named = [text.split("The preset ")[1].split()[0] for text in texts if "preset" in text]
    assert len(named) == len(texts) and set(named) <= names


def test_the_window_is_that_of_the_efficiency_verdict() -> None:
    losses = make_losses(compute=10, host=90)
    for in_steps, is_chosen, name in (
        (True, False, "`step` 1 to 5"),
        (False, False, "the capture"),
        (True, True, "the chosen time"),
    ):
        assert f" in {name} is lost" in advise(make_summary(losses, in_steps=in_steps, is_chosen=is_chosen))
    assert advise(replace(make_summary(losses), efficiency=None)) == ""


# ---- what moves ------------------------------------------------------------------------------------------------------


def test_a_function_that_moves_most_for_certain() -> None:
    found = make_summary(make_losses(compute=40, moving=40))  # 80 ms of two GPUs
    for others, says in ((40 * MS, ", most of it in AllReduce"), (40 * MS + 1, "")):
        nccl = [
            NcclNumbers(function=name, calls=1, bytes=1, kernels=1, kernel_ns=ns, carried_bytes=1, carried_ns=1)
            for name, ns in (("SendRecv", others), ("AllReduce", 900 * MS))
        ]
        assert advise(replace(found, nccl=nccl)) == f"{EXPOSED} moves data{says}{SHOWS_EXPOSED}"


@pytest.mark.parametrize(("below", "is_worth_a_word"), [(100, False), (101, True)])
def test_waits_below_the_uncertainty_count_as_moving(below: int, is_worth_a_word: bool) -> None:
    waits = replace(make_waits([], [], []), below_uncertainty=below)
    text = advise(make_summary(make_losses(compute=40, moving=40), waits=waits))
    assert ("; most waits are below the uncertainty of the clocks, and count as moving." in text) == is_worth_a_word


@pytest.mark.parametrize(
    ("not_split", "says"),
    [
        ({"its NCCL call has no payload": 2, "other": 1}, " (its NCCL call has no payload)"),
        ({"a": 3, "b": 2, "c": 2}, ""),
    ],
)
def test_why_most_is_not_split(not_split: dict[str, int], says: str) -> None:
    waits = replace(make_waits([], [], []), not_split=not_split)
    text = advise(make_summary(make_losses(compute=40, not_split=40), waits=waits))
    assert text == f"{EXPOSED} waits or moves data; which of both is not known{says}{SHOWS_EXPOSED}"


@pytest.mark.parametrize(("ns", "says"), [(20 * MS, ", most of it in Memcpy host to device"), (20 * MS + 1, "")])
def test_the_copies_that_take_most_for_certain(ns: int, says: str) -> None:
    copies = [("Memcpy host to device", 70 * MS), ("Memset", ns), ("Memcpy device to device", 20 * MS)]
    operations = [
        MemoryOperationNumbers(operation=name, count=1, bytes=1, total_ns=ns, rated_ns=ns) for name, ns in copies
    ]
    found = replace(make_summary(make_losses(compute=60, memory=40)), memory_operations=operations)
    assert advise(found) == (
        "Look first at copies and sets: 40.0% of the GPUs' time in `step` 1 to 5 is lost as only copies run"
        f"{says}. The preset basics/memory_operations shows it"
    )


# ---- main threads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("balance", "communication", "says"),
    [
        (
            0.9,
            0.5,
            "communication in MPI: its efficiency is 50.0% in the capture, and that of load balance outside of MPI is "
            "90.0%. The preset basics/mpi shows it",
        ),
        (
            0.5,
            0.9,
            "load balance outside of MPI: its efficiency is 50.0% in the capture, and that of communication in MPI is "
            "90.0%. The preset model/host_efficiency shows it",
        ),
        (0.96, 0.97, ""),
        (0.7, 0.7, ""),
        (1.0, 1.0, ""),
    ],
)
def test_jobs_without_gpus(balance: float, communication: float, says: str) -> None:
    product = balance * communication
    host = HostEfficiency(
        parallel=product,
        mpi_parallel=product,
        mpi_load_balance=balance,
        mpi_communication=communication,
        offload=1.0,
        mpi_balance_in_nodes=1.0,
        mpi_balance_of_nodes=1.0,
    )
    assert advise(make_summary(None, host, in_steps=False)) == (f"Look first at {says}" if says else "")


# ---- who is waited for -----------------------------------------------------------------------------------------------

WAITING = make_losses(compute=40, waiting=50)
"""100 ms of two GPUs."""


def cost_of(number: int, reason: str, ns: int, range_: str = "") -> LateCost:
    return LateCost(rank=number, task=f"rank {number}", reason=reason, range=range_, call="", operation="", ns=ns)


def ask(waits: WaitNumbers, *, in_steps: bool = True) -> tuple[str, str]:
    """What to look at, and what stands after the number."""
    text = advise(make_summary(WAITING, waits=waits, in_steps=in_steps))
    where, rest = text.removeprefix("Look first at ").split(": 50.0% of the GPUs' time in ")
    return where, rest.split("NCCL waits for other ranks")[1].removesuffix(". The preset analysis/waited_for shows it")


def test_a_rank_its_reason_and_its_range() -> None:
    ranks = [make_rank(0, 10 * MS, 190 * MS), make_rank(1, 190 * MS, 10 * MS)]
    costs = [cost_of(0, LAUNCH, 170 * MS, "data loading"), cost_of(0, DEVICE, 20 * MS), cost_of(1, LAUNCH, 10 * MS)]
    assert ask(make_waits(ranks, costs, [])) == (
        "rank 0",
        f", most of it for rank 0 ({LAUNCH}, in `data loading`)",
    )
    costs[0] = replace(costs[0], range="")
    assert ask(make_waits(ranks, costs, []))[1] == f", most of it for rank 0 ({LAUNCH}, outside NVTX ranges)"
    costs[:1] = [cost_of(0, LAUNCH, 85 * MS, "a"), cost_of(0, LAUNCH, 85 * MS, "b")]
    assert ask(make_waits(ranks, costs, []))[1] == f", most of it for rank 0 ({LAUNCH})"
    costs[:3] = [cost_of(0, DEVICE, 95 * MS), cost_of(0, LAUNCH, 95 * MS)]
    assert ask(make_waits(ranks, costs, []))[1] == ", most of it for rank 0"
    assert ask(make_waits(ranks, [cost_of(0, UNKNOWN, 190 * MS)], []))[1] == ", most of it for rank 0"


def test_waits_for_others_count_against_a_reason_and_a_range() -> None:
    """Of the 100 ms that are lost, rank 0 has 55 at least. All of the other 45 may be beside each thing of it."""
    ranks = [make_rank(0, 45 * MS, 150 * MS), make_rank(1, 150 * MS, 45 * MS)]
    for other, says in ((5, f" ({LAUNCH}, in `a`)"), (6, f" ({LAUNCH})"), (50, f" ({LAUNCH})")):
        costs = [cost_of(0, LAUNCH, (150 - other) * MS, "a"), cost_of(0, LAUNCH, other * MS, "b")]
        assert ask(make_waits(ranks, costs, [])) == ("rank 0", f", most of it for rank 0{says}")
        costs[1] = cost_of(0, DEVICE, other * MS)
        whole = says if other == 5 else ""
        assert ask(make_waits(ranks, costs, [])) == ("rank 0", f", most of it for rank 0{whole}")


class Piece(NamedTuple):
    """Waiting for a rank: why, where, whether it is in the window, and the part of it that no compute hides."""

    rank: int
    reason: str
    range: str
    is_inside: bool
    ns: int
    exposed: int


PIECES = st.builds(
    lambda piece, hidden: piece._replace(exposed=max(0, piece.ns - hidden)),
    st.builds(
        Piece,
        st.integers(0, 2),
        st.sampled_from([LAUNCH, DEVICE]),
        st.sampled_from(["a", "b"]),
        st.booleans(),
        st.sampled_from([1, 5, 60, 300, 900]),
        st.just(0),
    ),
    st.sampled_from([0, 0, 0, 2, 100]),
)


@given(st.lists(PIECES, min_size=1, max_size=8))
def test_what_is_blamed_has_half_of_the_exposed_waiting_in_the_window(pieces: Sequence[Piece]) -> None:
    caused = Counter[int]()
    costs = Counter[tuple[int, str, str]]()
    for piece in pieces:
        caused[piece.rank] += piece.ns
        costs[piece.rank, piece.reason, piece.range] += piece.ns
    ranks = [make_rank(rank, sum(caused.values()) - caused[rank], caused[rank]) for rank in range(3)]
    # Everybody's waiting adds up to what is waited for.
    ranks = [replace(ranks[0], wait_ns=sum(caused.values())), *(replace(rank, wait_ns=0) for rank in ranks[1:])]
    waits = make_waits(ranks, [cost_of(*key[:2], ns, key[2]) for key, ns in costs.items()], [])
    inside = [piece for piece in pieces if piece.is_inside]
    lost = sum(piece.exposed for piece in inside)
    where, more = advice._describe_late(waits, lost)
    if not where:
        return
    blamed = [piece for piece in inside if f"rank {piece.rank}" == where]
    assert 2 * sum(piece.exposed for piece in blamed) >= lost
    for label in (LAUNCH, DEVICE):
        if label in more:
            blamed = [piece for piece in blamed if piece.reason == label]
            assert 2 * sum(piece.exposed for piece in blamed) >= lost
    for label in ("a", "b"):
        if f"`{label}`" in more:
            blamed = [piece for piece in blamed if piece.range == label]
            assert 2 * sum(piece.exposed for piece in blamed) >= lost


# ---- planted causes --------------------------------------------------------------------------------------------------


def read(shared_reports: Path, unpacked: Unpacked, name: str) -> tuple[JobSummary, list[Path]]:
    paths = [unpacked(shared_reports / f"exercises/{name}.rank{rank}.sqlite") for rank in range(4)]
    return summarize_reports(paths, IN_STEPS), paths


@pytest.mark.push_cases(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "part", "what", "says", "preset"),
    [
        ("ex1a-slow", "host_ns", "the host", "while it was in `data loading`", "analysis/gpu-gaps"),
        (
            "ex3a-pp2-plain",
            "not_split_ns",
            "communication that no compute hides",
            "(its NCCL call has no payload)",
            "analysis/exposed_communication",
        ),
        ("ex1b-fp32", "compute_ns", "kernels", "in class GEMM FP32", "analysis/kernel_classes"),
        (
            "ex2b-manual",
            "moving_ns",
            "communication that no compute hides",
            "most of it in AllReduce",
            "analysis/exposed_communication",
        ),
    ],
)
def test_planted_causes(
    shared_reports: Path, unpacked: Unpacked, name: str, part: str, what: str, says: str, preset: str
) -> None:
    found, _ = read(shared_reports, unpacked, name)
    text = advise(found)
    assert found.efficiency is not None and found.efficiency.in_steps is not None
    window = found.efficiency.in_steps
    assert window.losses is not None
    times = {field.name: getattr(window.losses, field.name) for field in fields(Losses) if field.name.endswith("_ns")}
    assert max(times, key=times.__getitem__) == part and sum(times.values()) == 4 * window.window_ns
    assert text.startswith(f"Look first at {what}: ") and says in text
    assert f"{100 * times[part] / sum(times.values()):.1f}% of " in text
    assert text.endswith(f". The preset {preset} shows it")


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("ex1a-fast", marks=pytest.mark.all_sets), "ex3a-pp1"])
def test_the_rank_that_is_blamed_against_plain_loops(shared_reports: Path, unpacked: Unpacked, name: str) -> None:
    found, paths = read(shared_reports, unpacked, name)
    text = advise(found)
    assert " is lost as NCCL waits for other ranks" in text and found.efficiency is not None
    assert found.efficiency.steps_ns is not None and found.waits is not None
    low, high = (found.start_utc_ns + limit for limit in found.efficiency.steps_ns)
    waited: Counter[int] = Counter()
    for kernels in find_truth(paths):
        for kernel in kernels:
            waited[kernel.last] += max(0, min(kernel.until, high) - max(kernel.begin, low))
    [(worst, ns)] = waited.most_common(1)
    assert 2 * ns >= sum(waited.values())
    assert text.startswith(f"Look first at rank {worst}: ")
    assert f", most of it for rank {worst} ({LAUNCH}" in text


@pytest.mark.slow
def test_a_job_of_mpi_and_gpus(samples: Path) -> None:
    text = advise(summarize_reports(sorted(samples.glob("mpi-4.rank*.sqlite")), IN_STEPS))
    assert text.startswith("Look first at the host: ") and "% while it was in `collectives`" in text
