"""Light dataclasses against the standard ones."""

import dataclasses
import pickle
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.light_dataclass import dataclass

OPTIONS = ("frozen", "kw_only", "eq", "repr")
SHAPES = [dict(zip(OPTIONS, chosen, strict=True)) for chosen in product((False, True), repeat=4)]
VALUES = st.integers(0, 1) | st.text(max_size=1) | st.lists(st.integers(0, 1), max_size=1)


def _make(decorator: Any, options: dict[str, bool]) -> Any:
    @decorator(**options)
    class Point:
        """A point."""

        x: object
        y: object = dataclasses.field(default=0, compare=False)
        z: object = dataclasses.field(default_factory=list, repr=False)

    Point.__qualname__ = "Point"
    return Point


PAIRS = [(_make(dataclass, options), _make(dataclasses.dataclass, options), options) for options in SHAPES]


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


@pytest.mark.parametrize(("light", "standard", "options"), PAIRS, ids=map(str, SHAPES))
@given(x=VALUES, other_x=VALUES, y=st.integers(0, 1), z=VALUES)
def test_methods_agree(
    light: Any, standard: Any, options: dict[str, bool], x: object, other_x: object, y: int, z: object
) -> None:
    ours, theirs = light(x=x, y=y, z=z), standard(x=x, y=y, z=z)
    assert ours != theirs
    for change in ({"x": other_x}, {"y": 1 - y}, {"z": other_x}, {}):
        changed, reference = dataclasses.replace(ours, **change), dataclasses.replace(theirs, **change)
        assert (ours == changed) == (theirs == reference)
        assert _is_hashable(changed) == _is_hashable(reference)
        if options["eq"] and ours == changed and _is_hashable(ours):
            assert hash(ours) == hash(changed)
        assert dataclasses.asdict(changed) == dataclasses.asdict(reference)
        if options["repr"]:
            assert repr(changed) == repr(reference)


@pytest.mark.parametrize("decorator", [dataclass, dataclasses.dataclass])
def test_a_class_keeps_its_own_methods(decorator: Any) -> None:
    @decorator(frozen=True)
    class Named:
        name: str

        def __repr__(self) -> str:
            return self.name

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and self.name.lower() == other.name.lower()

        def __hash__(self) -> int:
            return 7

    @decorator(frozen=True)
    class Longer(Named):
        length: int = 0

    assert (repr(Named("a")), Named("a") == Named("A"), hash(Named("a"))) == ("a", True, 7)
    assert (Longer("a", 1) == Longer("A", 1), Longer("a", 1) == Longer("a", 1)) == (False, True)
    assert "length=0" in repr(Longer("a"))


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("decorator", [dataclass, dataclasses.dataclass])
def test_a_class_with_one_of_the_methods_gets_the_other(decorator: Any, frozen: bool) -> None:
    @decorator(frozen=frozen)
    class Hashed:
        name: str

        def __hash__(self) -> int:
            return 7

    @decorator(frozen=frozen)
    class Equal:
        name: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

    assert hash(Hashed("a")) == 7 and Hashed("a") == Hashed("a") != Hashed("b")
    assert Equal("a") == Equal("b") and _is_hashable(Equal("a")) == frozen


@dataclass(frozen=True)
class Node:
    """A node of a list."""

    next: Any = None


def test_values_survive_pickling_and_cycles() -> None:
    node = Node(Node())
    assert pickle.loads(pickle.dumps(node)) == node
    assert {node: 1}[Node(Node())] == 1
    object.__setattr__(node, "next", node)
    assert repr(node) == "Node(next=...)"
