"""Clocks of simulated chains of nodes that exchange only messages: errors, and the bounds that are stated for them."""

from __future__ import annotations

import numpy as np
import pytest

from nsys2prv_ng.clock.alignment import AUTO, fit_from_matches
from tests.clock.simulated_chains import random_pipeline, run_pipeline

_ROUNDING = 2
"""Rounding to whole ns, here and in the columns, is not in the bound."""


@pytest.mark.slow
@pytest.mark.parametrize("cases", [100, pytest.param(1000, marks=pytest.mark.all_sets)])
def test_bounds_hold_and_are_not_far_off(cases: int) -> None:
    held, times_too_large = 0, []
    for seed in range(cases):
        run = run_pipeline(random_pipeline(seed))
        alignment = fit_from_matches(AUTO, run.matches, 0, run.pipeline.names)
        errors = run.measure_errors(alignment)
        assert all(node.bound is not None for node in alignment.nodes)
        bounds = np.array([node.bound for node in alignment.nodes], np.float64)
        held += bool((errors <= bounds + _ROUNDING).all())
        times_too_large.append(bounds.max() / errors.max())
    assert held >= 0.99 * cases
    assert np.median(times_too_large) < 10
