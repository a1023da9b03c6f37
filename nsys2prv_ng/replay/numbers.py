"""The numbers of a what-if analysis: what each change would save. These dataclasses are the JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, field
from typing import Any

from nsys2prv_ng.replay.changes import Change, read_changes
from nsys2prv_ng.text.formatting import count_noun, format_percent, format_time
from nsys2prv_ng.text.grid import Bar, BarPart, Bound, Cell, Column, Grid, Name, Ns, Saving, Share, make_columns
from nsys2prv_ng.text.names import name_task
from nsys2prv_ng.text.results import Tabular
from nsys2prv_ng.value_class import ValueClass

WHAT_IF_VERSION = 1


class RankSaving(ValueClass, kw_only=True):
    """How much shorter (ns) the steps of a rank become, on average."""

    rank: int | None
    task: str
    saving_ns: int


class Limit(ValueClass, kw_only=True):
    """What takes most of the time of the path that decides how long the steps are.

    `what`: host, GPU, launch, copies or network. `rank`: the rank it belongs to; None for the network.
    """

    what: str
    rank: int | None
    share: float
    """Its part of the path, from 0 to 1."""


class Scenario(ValueClass, kw_only=True):
    """Changes, and what they would do together. Times are ns a step, on average over the steps that count."""

    changes: tuple[Change, ...] = field(metadata={"key": "change", "read": read_changes})
    predicted_step_ns: int
    saving_ns: int
    share: float
    """The saving as a part of the step."""
    limited_by: Limit | None
    """What limits the job with this change."""
    connected: bool
    """Whether the change has any influence on the steps: the same thing, made ten times longer, shows in them."""
    measurable: bool
    """Whether the saving is larger than the variation of the steps (`noise_ns`)."""
    ranks: list[RankSaving] = field(default_factory=list)

    @property
    def change(self) -> str:
        """The changes as text."""
        return " and ".join(map(str, self.changes))

    @property
    def only(self) -> Change | None:
        """The change, if it is only one."""
        return self.changes[0] if len(self.changes) == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        fields = asdict(self)
        del fields["changes"]
        return {"change": self.change, **fields}


class Slack(ValueClass, kw_only=True):
    """How much longer (ns a step) a range or class of kernels may take before the steps do; None if no limit is known.

    `own_ns`: what it takes now.
    """

    target: str
    own_ns: int
    slack_ns: int | None


class Replayed(ValueClass, kw_only=True):
    """Which steps were replayed of a job that is too large to be replayed as a whole."""

    steps: tuple[int, int]
    """Numbers of the first and last step."""
    of_steps: int
    """Number of steps of the job that count."""
    of_operations: int
    """Number of operations and calls of the whole job."""


class Repeated(ValueClass, kw_only=True):
    """Kernels that a thread launches many times in a row within a step."""

    kind: str
    """For what: `optimizer` (each parameter), `embedding` (each table), `recurrent` (each time step) or `others`."""
    kernels: int
    """The number of kernels of a repetition."""
    times: int
    """The number of repetitions in a row."""


class WhatIfNumbers(Tabular, kw_only=True):
    """What changes would save. Times are ns a step, on average over the steps that count."""

    steps: int
    """Number of steps that count, or of those of them that were replayed (`replayed`); 0 if the program shows none:
    then all numbers are for its whole time."""
    step_ns: int
    noise_ns: int
    """The variation of all steps that count: 1.4826 times the median deviation from the median, which is sigma if it is
    normal.

    With less than eight steps, their standard deviation; 0 for one step, and without steps.
    """
    limited_by: Limit | None
    """What sets the pace now; None if hosts and GPUs are about equally fast."""
    scenarios: list[Scenario]
    """The largest saving first; changes that the user named are in the order given."""
    slack: list[Slack]
    unsplit_ns: int
    """Time (ns a step) of NCCL kernels that may be waiting or moving data: no change of the network alters it."""
    replayed: Replayed | None = None
    """The steps that were replayed; None if all were."""
    repeats: list[Repeated] = field(default_factory=list)
    """What steps launch many times in a row, that with most launches first."""

    @property
    def best(self) -> Scenario | None:
        """The change that saves most; one that somebody can make, if any of these saves something measurable."""
        useful = [scenario for scenario in self.scenarios if scenario.measurable and scenario.saving_ns > 0]
        specific = [scenario for scenario in useful if not scenario.changes[0].is_bound]
        return max(specific or useful, key=lambda scenario: scenario.saving_ns, default=None)

    def tabulate(self) -> dict[str, Grid]:
        """Return the tables by name, also those without rows."""
        return {"scenarios": tabulate_scenarios(self), "slack": tabulate_slack(self)}

    def _list_shown(self) -> Sequence[Grid]:
        return [*self.tabulate().values()]

    def __repr__(self) -> str:
        """Return one line: all numbers are screens of text."""
        best = "" if self.best is None else f", {self.best.change} saves {format_time(self.best.saving_ns)}"
        step = (
            "the whole time" if not self.steps else f"{count_noun(self.steps, 'step')} of {format_time(self.step_ns)}"
        )
        return f"<{type(self).__name__} of {step}{best}>"

    def to_fields(self) -> dict[str, Any]:
        """Return the numbers as JSON has them within a summary."""
        return {**asdict(self), "scenarios": [scenario.to_dict() for scenario in self.scenarios]}

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as JSON has them."""
        return {"version": WHAT_IF_VERSION, **self.to_fields()}


# ---- tables ----------------------------------------------------------------------------------------------------------


def name_limit(limit: Limit | None) -> str:
    """Return what sets the pace in words, and its share; "" if that is not known."""
    return "" if limit is None else f"{name_pace(limit)} ({format_percent(limit.share, 1)})"


def name_pace(limit: Limit) -> str:
    """Return what sets the pace in words: host of rank 3."""
    if limit.what == "network":
        return "the network"
    what = "launch latency" if limit.what == "launch" else limit.what
    return f"the {what}" if limit.rank is None else f"{what} of {name_task(limit.rank, '')}"


def tabulate_scenarios(numbers: WhatIfNumbers) -> Grid:
    """Return what each change with a measurable saving saves a step, and what sets the pace then."""
    rows: list[list[Cell]] = [
        [
            Name(scenario.change),
            Saving(scenario.saving_ns),
            Share(scenario.saving_ns, numbers.step_ns) if scenario.saving_ns >= 0 else "",
            Bar([BarPart("saves", "host_ns", max(scenario.saving_ns, 0))], numbers.step_ns),
            name_limit(scenario.limited_by),
        ]
        for scenario in numbers.scenarios
        if scenario.measurable
    ]
    caption = "Predicted savings per step, and what limits the step then"
    columns = make_columns("change", "saving", "share", Column("of the step", wide=True), "then limited by")
    return Grid(caption=caption, columns=columns, rows=rows, names=1)


def tabulate_slack(numbers: WhatIfNumbers) -> Grid:
    """Return by how much ranges and classes of kernels may grow before the steps do, the least slack first."""
    rows: list[list[Cell]] = [
        [Name(slack.target), Ns(slack.own_ns), Bound(slack.slack_ns)]
        for slack in sorted(numbers.slack, key=lambda own: (own.slack_ns is None, own.slack_ns or 0, -own.own_ns))
    ]
    caption = "Slack per step of a rank, before steps take longer"
    return Grid(caption=caption, columns=make_columns("range or kernels", "time", "slack"), rows=rows, names=1)
