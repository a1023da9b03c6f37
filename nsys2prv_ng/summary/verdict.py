"""The answer of a summary: what limits the job, where, what that costs, and what to try. Times are ns."""

from __future__ import annotations

from dataclasses import asdict, field
from typing import Any

from nsys2prv_ng.value_class import ValueClass


class Place(ValueClass, kw_only=True):
    """Something that takes time: a range, a call, a kernel or its class, an NCCL function, a wait, a rank or a step."""

    kind: str
    """"range", "call", "class", "function", "kernel", "copies", "wait", "sampled", "rank" or "step"."""
    name: str
    ns: int | None = None
    """Time in it, over all ranks; None if the place has no time of its own."""


class Gain(ValueClass, kw_only=True):
    """A change, as a what-if analysis spells it, and what it saves a step (ns)."""

    change: str
    saving_ns: int


class TriedRemedy(ValueClass, kw_only=True):
    """A remedy for which there is evidence: its section in docs/guides/remedies.md, and what it saves a step (ns).

    The saving is None if that is not known.
    """

    key: str
    saving_ns: int | None


class StragglerReason(ValueClass, kw_only=True):
    """What a straggler did while others waited, and how long they waited for that (ns, over all of them)."""

    range: str
    call: str
    ns: int


class Straggler(ValueClass, kw_only=True):
    """A rank for which others waited for more than 2 % of the time of all ranks."""

    rank: int | None
    task: str
    caused_wait_ns: int
    inherited_ns: int
    """The part of it in which the rank was late because it had waited for another rank."""
    reasons: list[StragglerReason]


class Statement(ValueClass, kw_only=True):
    """A labelled line of the answer, and the parts of the JSON with its numbers."""

    label: str
    text: str
    evidence: list[str] = field(default_factory=list)
    """Keys of the JSON of a summary, such as "efficiency", or "waits.links" for a key within another."""
    section: str = ""
    """Title of the section of the page that shows it; empty for lines that name none."""


class Verdict(ValueClass, kw_only=True):
    """What limits a job. The classes are in summary/answer/bottlenecks.py, and docs/reference/bottlenecks.md."""

    bottleneck: str
    """The class of the bottleneck; empty if there is nothing to judge."""
    share: float | None
    """Its part of the time of all GPUs, from 0 to 1; None without GPUs."""
    where: list[Place]
    """Where it is, the longest time first."""
    gain_ns: int | None
    """What removing it would save a step, by a replay; None if that is not known or below the variation of steps."""
    gains: list[Gain]
    """Changes that save something measurable, the best ones for this bottleneck first."""
    hint: str = field(metadata={"key": "try"})
    """What to try first: a fixed hint for the class. The JSON calls it `try`."""
    see: str
    """The preset that shows it, and the time to look at."""
    stragglers: list[Straggler]
    startup: str
    """What the steps exclude; empty if nothing is excluded."""
    trust: list[str]
    """What makes numbers less certain."""
    statements: list[Statement]
    """The lines that `nsys2prv-ng summary` prints."""
    remedies: list[TriedRemedy] = field(default_factory=list)
    """What to try before the hint, the largest saving first."""

    @classmethod
    def make_unjudged(cls) -> Verdict:
        """Return the verdict on a job that nobody has judged, as in a summary of an older version."""
        lists: dict[str, Any] = {name: [] for name in ("where", "gains", "stragglers", "trust", "statements")}
        return cls(bottleneck="", share=None, gain_ns=None, hint="", see="", startup="", **lists)

    @property
    def is_judged(self) -> bool:
        """Whether there was anything to judge."""
        return bool(self.bottleneck)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        return {"try" if key == "hint" else key: value for key, value in asdict(self).items()}
