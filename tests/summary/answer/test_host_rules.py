"""Rules of hosts, each at the limit that it states, and on a capture whose host works after it has waited."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import nsys2prv_ng
from nsys2prv_ng.summary.answer import host_rules
from nsys2prv_ng.summary.answer.case import Case
from nsys2prv_ng.summary.answer.remedies import REMEDIES
from nsys2prv_ng.summary.efficiency.numbers import StepKind
from nsys2prv_ng.summary.memory.numbers import MemoryOperationNumbers
from nsys2prv_ng.summary.readbacks.numbers import ReadbackNumbers
from nsys2prv_ng.summary.waits.numbers import MpiNumbers
from tests.conftest import Unpacked
from tests.summary.made_summary import MS, STEPS_NS, make_losses, make_summary

STEPS, RANKS = 5, 2
"""Of the jobs made here."""


def make_case(**parts: Any) -> Case:
    job = make_summary(make_losses(1, compute=40, host=60))
    return Case(replace(job, windows_ns=[STEPS_NS], **parts))


def copy(end: str, count: int, size: int = 8) -> MemoryOperationNumbers:
    fields = {"operation": f"Memcpy {end}", "count": count, "bytes": count * size, "total_ns": count}
    return cast(MemoryOperationNumbers, SimpleNamespace(**fields))


@pytest.mark.parametrize(
    ("there", "back", "size", "answer"),
    [(20, 20, 8, True), (20, 18, 8, True), (20, 17, 8, False), (19, 19, 8, False), (20, 20, 7, False)],
)
def test_arrays_go_to_and_fro(there: int, back: int, size: int, answer: bool) -> None:
    """As many copies and bytes come back as go, twice a step and rank."""
    copies = [copy("host to device", there), copy("device to host", back, size)]
    assert host_rules.copies_to_and_fro(make_case(memory_operations=copies)) == answer
    sends = MpiNumbers(call="MPI_Send", count=1, total_ns=1, max_ns=1, sent_bytes=1, received_bytes=None, rated_ns=1)
    assert not host_rules.copies_to_and_fro(make_case(memory_operations=copies, mpi=[sends]))


def read(count: int, idle_ns: int, operation: str = "Memcpy device to host") -> ReadbackNumbers:
    return ReadbackNumbers(
        call="c", range="", operation=operation, memory="", count=count, bytes=4, wait_ns=MS, idle_ns=idle_ns
    )


@pytest.mark.parametrize(
    ("kernel", "reads", "answer"),
    [
        ("triton_poi_fused_0", read(20, 5 * MS), True),
        ("triton_poi_fused_0", read(19, 5 * MS), False),
        ("triton_poi_fused_0", read(20, 5 * MS - 1), False),
        ("triton_poi_fused_0", read(20, 5 * MS, "Memcpy host to device"), False),
        ("elementwise_kernel", read(20, 5 * MS), False),
    ],
)
def test_graphs_break_where_compiled_code_reads_values(kernel: str, reads: ReadbackNumbers, answer: bool) -> None:
    """Twice a step and rank, and GPUs are idle 5 % of the 100 ms of the steps after that."""
    kernels = [SimpleNamespace(name=kernel)]
    assert host_rules.breaks_graphs(make_case(kernels=kernels, readbacks=[reads])) == answer


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("eval", ["with cheaper validation"]),
        ("Validation", ["with cheaper validation"]),
        ("retrieval", []),
        ("other work", ["with less work between steps"]),
    ],
)
def test_kinds_of_steps_that_validate(name: str, answer: list[str]) -> None:
    case = cast(Case, SimpleNamespace(other_kind=cast(StepKind, SimpleNamespace(name=name))))
    found = [
        each.clause for each in REMEDIES if each.key == "cheaper-validation" and each.applies and each.applies(case)
    ]
    assert found == answer


def test_work_after_a_wait_is_no_read_back(shared_reports: Path, unpacked: Unpacked) -> None:
    """The host of m-base assembles after each solve: its code is what the GPU waits for, not the one wait a step."""
    report = unpacked(shared_reports / "whatif/m-base.rank3.sqlite")
    verdict = nsys2prv_ng.summarize([report]).verdict
    assert verdict is not None and verdict.bottleneck == "host-bound"
    assert [place.name for place in verdict.where][:1] == ["assembly"]
