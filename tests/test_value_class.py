"""Dataclasses on ValueClass against those of the standard decorator."""

from __future__ import annotations

import ast
import dataclasses
import pickle
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nsys2prv_ng
from nsys2prv_ng.value_class import ValueClass

VALUES = st.integers(0, 1) | st.text(max_size=1) | st.lists(st.integers(0, 1), max_size=1)


class Fields:
    x: object
    y: object = dataclasses.field(default=0, compare=False)
    z: object = dataclasses.field(default_factory=list, repr=False)


def make_body() -> dict[str, Any]:
    body = {"__annotations__": Fields.__annotations__, "__qualname__": "Point", "__module__": __name__}
    return body | {name: vars(Fields)[name] for name in ("y", "z")}


PAIRS = [
    (
        types.new_class("Point", (ValueClass,), more, lambda body: body.update(make_body())),
        dataclass(frozen=True, **more)(type("Point", (), make_body())),
    )
    for more in ({}, {"kw_only": True})
]


def is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


@pytest.mark.parametrize(("light", "standard"), PAIRS)
@given(x=VALUES, other_x=VALUES, y=st.integers(0, 1), z=VALUES)
def test_methods_agree(light: Any, standard: Any, x: object, other_x: object, y: int, z: object) -> None:
    ours, theirs = light(x=x, y=y, z=z), standard(x=x, y=y, z=z)
    assert ours != theirs
    for change in ({"x": other_x}, {"y": 1 - y}, {"z": other_x}, {}):
        changed, reference = dataclasses.replace(ours, **change), dataclasses.replace(theirs, **change)
        assert (ours == changed) == (theirs == reference)
        assert is_hashable(changed) == is_hashable(reference)
        if ours == changed and is_hashable(ours):
            assert hash(ours) == hash(changed)
        assert dataclasses.asdict(changed) == dataclasses.asdict(reference)
        assert repr(changed) == repr(reference)


class Node(ValueClass):
    """A class that may contain itself, with a class that extends it."""

    inside: object = None


class Leaf(Node):
    size: int = 0


def test_classes_within_each_other() -> None:
    assert Leaf(1, 2) == Leaf(1, 2) != Leaf(1, 3) and Node(1) != Leaf(1) and len({Leaf(1), Leaf(1), Node(1)}) == 2
    assert pickle.loads(pickle.dumps(Leaf(Node(1)))) == Leaf(Node(1))
    node = Node()
    node.inside = [node]
    assert repr(node) == "Node(inside=[...])"


FROZEN = ("Change", "Scope", "Selection")
"""What many share: it costs 0.3 ms a class."""
NO_VALUES = ("Labels", "NvtxRanges", "Option", "Places", "ReportPlaces", "Task")
"""Dataclasses that are equal only to themselves."""


def test_every_dataclass_of_the_package_is_made_in_this_way() -> None:
    """The base makes the dataclass: a decorator would make it again, without the fields' defaults that are made."""
    count = 0
    for path in sorted(Path(nsys2prv_ng.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                chosen = {keyword.arg for keyword in node.keywords}
                assert "frozen" not in chosen or node.name in FROZEN, (path, node.name)
                decorated = any(ast.unparse(each).startswith("dataclass(") for each in node.decorator_list)
                assert not decorated or node.name in NO_VALUES, (path, node.name)
                count += "ValueClass" in map(ast.unparse, node.bases)
    assert count > 200
