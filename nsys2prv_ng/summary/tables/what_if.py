"""The tables of a what-if analysis: what each change saves, and by how much ranges and kernels may grow."""

from __future__ import annotations

from nsys2prv_ng.replay.numbers import Slack, WhatIfNumbers
from nsys2prv_ng.summary.words.what_if import name_limit
from nsys2prv_ng.text.grid import Bar, BarPart, Cell, Column, Grid, Name, Ns, Share, make_columns

UNLIMITED = "unlimited"


def tabulate_scenarios(numbers: WhatIfNumbers) -> Grid:
    """Return what each change with a measurable saving saves a step, and what sets the pace then."""
    rows: list[list[Cell]] = [
        [
            Name(scenario.change),
            Ns(scenario.saving_ns),
            Share(scenario.saving_ns, numbers.step_ns),
            Bar([BarPart("saves", "host_ns", scenario.saving_ns)], numbers.step_ns),
            name_limit(scenario.limited_by),
        ]
        for scenario in numbers.scenarios
        if scenario.measurable
    ]
    caption = "Predicted savings per step, and what limits the step then"
    columns = make_columns("change", "saving", "share", Column("of the step", wide=True), "then limited by")
    return Grid(caption=caption, columns=columns, rows=rows, names=1)


def tabulate_slack(numbers: WhatIfNumbers) -> Grid:
    """Return by how much ranges and classes of kernels may grow before the steps do."""
    rows: list[list[Cell]] = [
        [Name(slack.target), Ns(slack.own_ns), UNLIMITED if slack.slack_ns is None else Ns(slack.slack_ns)]
        for slack in _sort(numbers.slack)
    ]
    caption = "Slack per step of a rank, before steps take longer"
    return Grid(caption=caption, columns=make_columns("range or kernels", "time", "slack"), rows=rows, names=1)


def _sort(slack: list[Slack]) -> list[Slack]:
    """Return the least slack first, and the longest of equal ones."""
    unlimited = max((own.slack_ns or 0 for own in slack), default=0) + 1
    return sorted(slack, key=lambda own: (unlimited if own.slack_ns is None else own.slack_ns, -own.own_ns))
