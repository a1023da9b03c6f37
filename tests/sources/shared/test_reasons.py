"""Every reason for an event that is not written has a kind, and only reasons with a kind are used."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.sources.shared import reasons

PACKAGE = Path(nsys2prv_ng.__file__).parent
DEFINITIONS = PACKAGE / "sources/shared/reasons.py"
COUNTING = ("drop", "drop_rows", "drop_places", "drop_unended")

NO_LOSS = {
    "merged": {
        "merged into another row of the same call",
        "merged into the next change at the same time, nothing is lost",
        "later operation of the same launch and stream",
        "another value of its time and metric follows",
        "duplicate sample: another report of this node covers that time",
        "unchanged",
        "a step of the switch itself",
        "shown in steps of time, as overview",
    },
    "outside": {
        "outside the time of the trace",
        "outside the chosen time",
        "on an idle thread after all else has ended",
        "before the capture: only part of the memory in use",
        "its request was made before the capture",
        "its partner is a rank without a report",
    },
    "not_selected": {
        "outside the selected ranks and GPUs",
        "outside the selected NVTX domains",
        "none of its metrics was chosen",
        "sample between the first and the last",
        "its kernel or call is not selected",
        "shorter than the selected minimum",
        "on a folded thread",
        "wait shorter than the shortest with a line",
        "not shown in an overview",
        "more steps than an overview takes",
    },
    "not_applicable": {
        "its process made no traced call",
        "to or from MPI_PROC_NULL",
        "the operation did not synchronise its ranks",
        "wait within the clock error: counted as transfer",
        "did not wait for a rank",
        "kernel launched outside of NCCL's calls, as by a CUDA graph: no call to take a payload from",
    },
}
"""What the account does not call a loss. Everything else is one: add a reason here only if no event is missing."""


def test_what_is_no_loss_is_listed() -> None:
    fixed, _ = reasons.list_reasons()
    found = {kind: {text for text in fixed if reasons.find_kind(text) == kind} for kind in NO_LOSS}
    assert found == NO_LOSS
    assert {reasons.find_kind(text) for text in fixed} == set(reasons.KIND_WORDS)
    assert sum(reasons.find_kind(text) == "lost" for text in fixed) > 50


def test_texts_with_an_end_of_their_own() -> None:
    assert reasons.name_short_call(10_000) == "shorter than the minimum of 10us"
    assert reasons.find_kind("shorter than the minimum of 10us") == "not_selected"
    assert reasons.name_no_long_wait(2_000_000) == "without a wait of 2.00 ms in an overview"
    assert reasons.find_kind("without a wait of 2.00 ms in an overview") == "not_selected"
    assert reasons.name_unknown_event(99) == "unknown event type 99"
    assert reasons.find_kind("unknown event type 99") == "lost"


@pytest.mark.parametrize("text", ["", "a text of no version", "Merged into another row of the same call", "merged"])
def test_a_text_that_is_not_known_counts_as_a_loss(text: str) -> None:
    """A shard may be damaged or come from other people; nobody hides a loss in it."""
    assert reasons.find_kind(text) == "lost"


def list_modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, ast.parse(path.read_text())


def is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


@pytest.mark.slow
def test_no_module_counts_events_under_a_text_of_its_own() -> None:
    found, counted = [], 0
    for path, module in list_modules():
        calls = (node for node in ast.walk(module) if isinstance(node, ast.Call))
        for call in calls:
            if not isinstance(call.func, ast.Attribute) or call.func.attr not in COUNTING:
                continue
            keys = [key for argument in call.args if isinstance(argument, ast.Dict) for key in argument.keys]
            counted += len(call.args)
            found += [f"{path}:{call.lineno}" for node in (*call.args, *keys) if is_text(node)]
    assert counted > 100 and found == []


@pytest.mark.slow
def test_reasons_are_made_in_one_place() -> None:
    """`Reason` is the type that counting takes, so mypy refuses a text of which no kind is known."""
    makers = {
        path
        for path, module in list_modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Reason"
    }
    assert makers == {DEFINITIONS}
    # There, a reason is made by _define, or by a function of a start that has a kind.
    module = ast.parse(DEFINITIONS.read_text())
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    assert not [call for call in calls if call.func.id == "Reason" and id(call) not in inside]  # type: ignore[attr-defined]
    starts = [function for function in functions if function.name.startswith("name_")]
    assert len(starts) == len(reasons.list_reasons()[1]) == 3
