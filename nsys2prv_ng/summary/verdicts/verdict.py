"""A sentence on a job, for a terminal and for pages."""

from __future__ import annotations

from typing import Literal, NamedTuple

About = Literal["payload", "graphs", "efficiency", "waits", "critical path", "advice"]

NOTES: tuple[About, ...] = ("payload", "graphs")
"""Those on what is not known."""


class Verdict(NamedTuple):
    """A sentence that is not wrapped, the lines below it, and the part of a summary that has the numbers for it.

    Names from reports are in `backquotes`, on one line and printable.
    """

    text: str
    details: list[str]
    about: About
