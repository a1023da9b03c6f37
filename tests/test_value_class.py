"""Dataclasses on ValueClass against those of the standard decorator."""

from __future__ import annotations

import ast
import dataclasses
import pickle
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


def make(options: dict[str, bool], *bases: type) -> Any:
    body = {"__annotations__": Fields.__annotations__, "__qualname__": "Point", "__module__": __name__}
    defaults = {name: vars(Fields)[name] for name in ("y", "z")}
    return dataclass(**options)(type("Point", bases, body | defaults))  # type: ignore[call-overload]


PAIRS = [
    (make({"eq": False, "repr": False, **more}, ValueClass), make({"frozen": True, **more}))
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


@dataclass(eq=False, repr=False)
class Node(ValueClass):
    """A class that may contain itself, with a class that extends it."""

    inside: object = None


@dataclass(eq=False, repr=False)
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


def test_every_dataclass_of_the_package_is_made_in_this_way() -> None:
    """Those that have eq=False alone are equal only to themselves."""
    count = 0
    for path in sorted(Path(nsys2prv_ng.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for decorator in node.decorator_list if isinstance(node, ast.ClassDef) else []:
                if ast.unparse(decorator).startswith("dataclass"):
                    assert isinstance(decorator, ast.Call), path
                    chosen = {keyword.arg: ast.unparse(keyword.value) for keyword in decorator.keywords}
                    assert chosen.get("eq") == "False", (path, node.name)
                    assert "frozen" not in chosen or node.name in FROZEN, (path, node.name)
                    assert not node.bases or chosen.get("repr") == "False", (path, node.name)
                    assert node.bases or "repr" not in chosen, (path, node.name)
                    count += 1
    assert count > 200
