"""How many examples a property is tried with."""

from __future__ import annotations

from hypothesis import settings

_OF_PROFILE = 100
"""Examples of Hypothesis' own profile, for which the tests give their numbers."""


def examples(count: int) -> int:
    """Return a number of examples scaled to the profile: a quarter of it with `--hypothesis-profile dev`."""
    return max(1, count * settings.default.max_examples // _OF_PROFILE)
