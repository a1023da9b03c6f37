"""Measures slack: by how much a range or class of kernels may grow before the steps of a job do."""

from __future__ import annotations

from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.replay.numbers import Slack
from nsys2prv_ng.replay.what_if import Experiment

_TOLERANCE = 0.001
"""A step grows if it does so by more than this part of it."""
_LONGEST = 4.0
"""The most by which something is made longer, in steps: beyond, no limit is known."""
_ROUNDS = 10
"""Bisections: the slack is found to a thousandth of the longest."""


def measure_slack(experiment: Experiment, target: str, name: str, own_ns: int) -> Slack:
    """Return the slack of a target that takes `own_ns` (a step, on average over ranks).

    The mean step never shrinks if something grows (graph.py), so that bisection finds the limit.
    """
    observed = experiment.observed.mean_ns
    label = f"{target} {name!r}"

    def grows(longer_ns: float) -> bool:
        change = Change(target, name, 1 + longer_ns / own_ns)
        return experiment.play([change])[0].mean_ns > observed * (1 + _TOLERANCE)

    low, high = 0.0, _LONGEST * observed
    if not own_ns or not grows(high):
        return Slack(target=label, own_ns=own_ns, slack_ns=None)
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if grows(middle):
            high = middle
        else:
            low = middle
    return Slack(target=label, own_ns=own_ns, slack_ns=round(low))
