"""Lists the classes of bottlenecks, in the order in which judge.py asks for them.

A class is all that the program says of it: when it applies, its sentence, where it is, what counts as its gain, what to
try, and the preset that shows it. docs/reference/bottlenecks.md is written from it (docs/bottlenecks.py). The hints are
fixed texts, not conclusions from the reports.
"""

from __future__ import annotations

from nsys2prv_ng.summary.answer import busy_bottlenecks, idle_bottlenecks
from nsys2prv_ng.summary.answer.bottleneck import Bottleneck

BOTTLENECKS = tuple(
    each
    for module in (busy_bottlenecks, idle_bottlenecks)
    for each in vars(module).values()
    if isinstance(each, Bottleneck)
)
"""All classes and variants."""
