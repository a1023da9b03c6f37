"""Saved summaries of many steps."""

from __future__ import annotations

import typing
from dataclasses import field

import pytest

from nsys2prv_ng.summary import build
from nsys2prv_ng.summary.build import build_dataclass
from nsys2prv_ng.value_class import ValueClass


class Step(ValueClass):
    ns: int
    parts: dict[str, int] = field(default_factory=dict)


class Run(ValueClass):
    steps: list[Step]
    pair: tuple[int, float] | None = None


def test_the_types_of_a_class_are_read_once(monkeypatch):
    """To read them took ten times as long as all else."""
    asked = []
    monkeypatch.setattr(build, "get_type_hints", lambda cls: asked.append(cls) or typing.get_type_hints(cls))
    steps = [{"ns": n, "parts": {"a": n}, "later": 1} for n in range(1000)]
    run = build_dataclass(Run, {"steps": steps, "pair": [1, 0.5]})
    assert run == Run([Step(n, {"a": n}) for n in range(1000)], (1, 0.5))
    assert len(asked) == len(set(asked)) == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "Run has no steps"),
        ({"steps": 1}, "Run.steps is int"),
        ({"steps": [{}]}, "Step has no ns"),
        ({"steps": [{"ns": True}]}, "Step.ns is bool"),
        ({"steps": [{"ns": 2**63}]}, "Step.ns is beyond 64 bits"),
        ({"steps": [{"ns": 1, "parts": {"a": "b"}}]}, "Step.parts is str"),
        ({"steps": [None]}, "Run.steps is NoneType"),
        ({"steps": [], "pair": [1, float("inf")]}, "Run.pair is not finite"),
        ({"steps": [], "pair": [1]}, "Run.pair is list"),
    ],
)
def test_other_values_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        build_dataclass(Run, values)
