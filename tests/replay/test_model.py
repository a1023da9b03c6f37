"""The model of real reports: with nothing changed, every observed time comes back exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.replay.graph import play
from tests.replay.jobs import opened_model
from tests.report_sets import find_set, list_sets, sets

SETS = list_sets()


@pytest.mark.parametrize(
    "name", sets(SETS, push=["samples/ddp-2x2", "samples/single-graph", "gpu/um-1", "gpu/autograd-1"])
)
def test_what_was_observed_comes_back(name: str, tmp_path: Path) -> None:
    with opened_model(find_set(name), tmp_path) as model:
        graph, lanes = model.graph, model.lanes
        new = play(graph, graph.weight)
        assert new.tolist() == graph.time.tolist()
        first = model.numbers.call_begin
        operations, calls = lanes.operations, lanes.calls
        assert new[: operations.begin.size].tolist() == operations.begin.tolist()
        assert new[operations.begin.size : first].tolist() == operations.end.tolist()
        assert new[first : first + calls.begin.size].tolist() == calls.begin.tolist()
        assert new[first + calls.begin.size : model.numbers.others].tolist() == calls.end.tolist()
        # An operation with a launch depends on it, unless its clock contradicts: it is not played on its own.
        known = (model.launching >= 0) & (
            calls.begin[model.launching] <= operations.begin if calls.begin.size else True
        )
        assert set(known.nonzero()[0].tolist()) <= set(graph.to.tolist())
