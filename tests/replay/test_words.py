"""The text of a what-if analysis: no name of a report moves the cursor of a terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nsys2prv_ng.errors import escape_unprintable
from nsys2prv_ng.replay.changes import read_changes
from nsys2prv_ng.replay.numbers import Limit, Replayed, Scenario, WhatIfNumbers
from nsys2prv_ng.replay.words import describe_best, describe_others, describe_steps, describe_unsplit, format_what_if

NAME = "range 'a\x1b[31m\tb\x00\u2028' = 0"
SAVES = Scenario(
    changes=read_changes(NAME),
    predicted_step_ns=1,
    saving_ns=9,
    share=0.9,
    limited_by=None,
    connected=True,
    measurable=True,
)


@pytest.mark.parametrize(
    "scenario",
    [SAVES, replace(SAVES, saving_ns=0, measurable=False), replace(SAVES, measurable=False, connected=False)],
    ids=["saves", "nothing measurable", "not connected"],
)
def test_names_have_no_control_characters(scenario: Scenario) -> None:
    numbers = WhatIfNumbers(
        steps=2, step_ns=10, noise_ns=1, limited_by=None, scenarios=[scenario], slack=[], unsplit_ns=0
    )
    text = format_what_if(numbers, 200)
    assert "range 'a [31m b" in text
    assert all(line == escape_unprintable(line) for line in text.split("\n"))


MS = 1_000_000


def try_change(change: str, saving: int, *, measurable: bool = True, connected: bool = True) -> Scenario:
    return Scenario(
        changes=read_changes(change),
        predicted_step_ns=100 * MS - saving,
        saving_ns=saving,
        share=saving / (100 * MS),
        limited_by=None,
        connected=connected,
        measurable=measurable,
    )


def find(*scenarios: Scenario, steps: int = 5, unsplit_ns: int = 0, limited_by: Limit | None = None) -> WhatIfNumbers:
    return WhatIfNumbers(
        steps=steps,
        step_ns=100 * MS,
        noise_ns=2 * MS,
        limited_by=limited_by,
        scenarios=list(scenarios),
        slack=[],
        unsplit_ns=unsplit_ns,
    )


@pytest.mark.parametrize(
    ("scenarios", "says"),
    [
        ([], ""),
        ([try_change("copies = 0", MS, measurable=False)], "No change saves more than the steps vary by."),
        ([try_change("copies = 0", -5 * MS)], "No change saves more than the steps vary by."),
        ([try_change("range 'a`b\x1b' = 0", 40 * MS)], "`range 'a'b ' = 0` saves about 40.0 ms a step (40.0%)."),
    ],
)
def test_the_change_that_saves_most(scenarios: list[Scenario], says: str) -> None:
    assert describe_best(find(*scenarios)) == says


def test_what_somebody_can_change_comes_before_bounds() -> None:
    bounds = [try_change(change, 60 * MS) for change in ("host = ideal", "waits = 0", "rank 2 = median")]
    made = try_change("copies = 0", 40 * MS)
    assert describe_best(find(*bounds, made)) == "`copies = 0` saves about 40.0 ms a step (40.0%)."
    assert describe_best(find(*bounds)) == "`host = ideal` saves about 60.0 ms a step (60.0%)."


def test_without_steps_savings_are_of_all_time() -> None:
    numbers = find(try_change("copies = 0", 40 * MS), steps=0)
    assert describe_best(numbers) == "`copies = 0` saves about 40.0 ms in all (40.0%)."
    assert describe_steps(numbers) == "No steps were found: the whole time is 100 ms."


def test_what_sets_the_pace() -> None:
    steps = "5 steps of 100 ms on average, which vary by 2.00 ms"
    assert describe_steps(find()) == f"{steps}; hosts and GPUs are about equally fast."
    host = Limit(what="host", rank=3, share=0.9)
    assert describe_steps(find(limited_by=host)) == f"{steps}; host of rank 3 (90.0%) sets the pace."


def test_at_most_eight_changes_without_a_measurable_saving_are_named() -> None:
    small = [try_change(f"range '{n}' = 0", 1, measurable=False) for n in range(11)]
    apart = try_change("copies = 0", 0, measurable=False, connected=False)
    named = ", ".join(f"`range '{n}' = 0`" for n in range(8))
    assert describe_others(find(*small, apart)) == (
        f"Nothing measurable: {named} and 3 more."
        " Not connected to any step, though made ten times longer: `copies = 0`."
    )
    assert describe_others(find(*small[:8])) == f"Nothing measurable: {named}."
    assert describe_others(find(try_change("copies = 0", 9 * MS))) == ""


def test_nccl_kernels_that_keep_their_length() -> None:
    assert describe_unsplit(find()) == ""
    assert describe_unsplit(find(unsplit_ns=3 * MS)).startswith("NCCL kernels of 3.00 ms a step keep their length")


@pytest.mark.parametrize(
    ("steps", "operations", "says"),
    [
        ((12, 19), 9_149_999, "Only steps 12 to 19 of 60 were replayed: the whole job has 9.1 million"),
        ((7, 7), 20_000, "Only step 7 of 60 was replayed: the whole job has 20,000"),
    ],
)
def test_an_excerpt_says_so(steps: tuple[int, int], operations: int, says: str) -> None:
    numbers = replace(find(), replayed=Replayed(steps=steps, of_steps=60, of_operations=operations))
    assert describe_steps(numbers).endswith(f"; hosts and GPUs are about equally fast. {says} operations and calls.")
    assert "replayed" not in describe_steps(find())


def test_steps_that_get_longer_have_a_time_and_no_share() -> None:
    scenarios = [try_change("host * 30", -2_900 * MS), try_change("host = ideal", 25 * MS)]
    numbers = WhatIfNumbers(
        steps=2, step_ns=100 * MS, noise_ns=1, limited_by=None, scenarios=scenarios, slack=[], unsplit_ns=0
    )
    longer, shorter = (line for line in format_what_if(numbers, 100).split("\n") if line.startswith("host "))
    assert "2.90 s longer" in longer and "%" not in longer and "-" not in longer
    assert "25.0 ms" in shorter and "25.0%" in shorter
