"""The graph of nodes that computes Paraver's windows, made from their descriptions in a .cfg."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.cfgs.evaluator.file import Function, WindowSpec
from tests.cfgs.evaluator.functions import CHILD, COMPOSES, CONTROLLEDS, DERIVEDS, NODE, UPPERS, Machine, make_machine
from tests.cfgs.evaluator.machine import COMPOSE, CONTROLLED, DERIVED, JOIN, LEAF, SHIFT, UPPER
from tests.cfgs.evaluator.names import LEVELS
from tests.cfgs.evaluator.threads import Leaves
from tests.trace_reader import Trace

_FINER = {"workload": "appl", "appl": "task", "task": "thread", "system": "node", "node": "cpu"}
_RESOURCES = ("system", "node", "cpu")


class Objects:
    """The objects of each level, and which belong to which; indices count from 0."""

    def __init__(self, trace: Trace) -> None:
        tasks = np.array(trace.task_of_row) - 1
        nodes = np.repeat(np.arange(len(trace.cpus)), trace.cpus)
        self._parents = {"thread": tasks, "task": np.zeros(len(trace.threads), int), "appl": np.zeros(1, int)}
        self._parents |= {"cpu": nodes, "node": np.zeros(len(trace.cpus), int)}

    def count(self, level: str) -> int:
        return len(self._parents[level]) if level in self._parents else 1

    def list_children(self, level: str, index: int) -> list[int]:
        return np.flatnonzero(self._parents[_FINER[level]] == index).tolist()

    def find_ancestor(self, level: str, index: int, coarser: str) -> int:
        """Return the object of a coarser level (or the same) that an object belongs to."""
        if (level in _RESOURCES) != (coarser in _RESOURCES):
            raise NotImplementedError(f"windows of the levels {level} and {coarser} together")
        while level != coarser:
            index = int(self._parents[level][index])
            level = next(name for name, finer in _FINER.items() if finer == level)
        return index


@dataclass
class Graph:
    """Nodes of windows; windows that derive from the same one share its nodes."""

    windows: list[WindowSpec]
    objects: Objects
    leaves: Callable[[int], Leaves]
    """Bursts of the level thread, or cpu, of a window."""

    def __post_init__(self) -> None:
        self._nodes: list[dict[str, Any]] = []
        self._children: list[int] = []
        self._parameters: list[float] = []
        self._tops: dict[tuple[int, int], int] = {}
        self._bursts: list[np.ndarray] = []
        self._first_burst: dict[int, int] = {}
        self._ring = 0

    def make_top(self, window: int, index: int) -> int:
        """Return the node of what a window shows of an object, made on first use."""
        if (window, index) not in self._tops:
            spec = self.windows[window]
            node = self._add_level(window, spec.level, index)
            for function in (spec.functions["topcompose2"], spec.functions["topcompose1"], *spec.extra):
                node = self._add_composed(node, function, spec.unit)
            self._tops[window, index] = node
        return self._tops[window, index]

    def make_machine(self, finish: float) -> Machine:
        """Return a machine of the nodes so far, each before its first burst; `finish` is the end of the trace (ns)."""
        nodes = np.zeros(len(self._nodes), NODE)
        for name in NODE.names:
            nodes[name] = [node.get(name, 0) for node in self._nodes]
        children = np.zeros(len(self._children) + 1, CHILD)
        children["node"][:-1] = self._children
        bursts = np.concatenate(self._bursts)
        return make_machine(nodes, children, bursts, self._ring, self._parameters, finish)

    def _add(self, kind: int, children: list[int], function: Function | None = None, **columns: float) -> int:
        node = {"kind": kind, "first": len(self._children), "count": len(children), **columns}
        if children:
            node["finish_id"] = self._nodes[children[0]]["finish_id"]
        if function is not None:
            for i in range(3):
                node[f"parameter_{i}"] = len(self._parameters)
                self._parameters += function.parameters[i] if i < len(function.parameters) else []
        self._children += children
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _add_composed(self, node: int, function: Function, unit: float) -> int:
        if function.name == "As Is":
            return node
        if function.name == "Join Bursts":
            return self._add(JOIN, [node])
        if function.name not in COMPOSES:
            raise NotImplementedError(function.name)
        if function.name == "Translate" and len(function.parameters[0]) % 2:
            raise NotImplementedError("Translate of a list that is not of pairs")
        return self._add(COMPOSE, [node], function, code=COMPOSES.index(function.name), unit=unit)

    def _add_level(self, window: int, level: str, index: int) -> int:
        """Add the node of an object at a level at or below the window's, with the compose function of that level."""
        spec = self.windows[window]
        if spec.derived and level == spec.finest:
            node = self._add_derived(window, index)
        elif level in ("thread", "cpu"):
            node = self._add_leaf(window, index)
        else:
            function = spec.functions[level]
            if function.name not in UPPERS:
                raise NotImplementedError(function.name)
            children = [
                self._add_level(window, _FINER[level], child) for child in self.objects.list_children(level, index)
            ]
            node = self._add(UPPER, children, function, code=UPPERS.index(function.name))
        return self._add_composed(node, spec.functions[f"compose_{level}"], spec.unit)

    def _add_leaf(self, window: int, index: int) -> int:
        leaves = self.leaves(window)
        if window not in self._first_burst:
            self._first_burst[window] = sum(map(len, self._bursts))
            self._bursts.append(leaves.bursts)
        first, last = leaves.first[index : index + 2].tolist()
        node = self._add(LEAF, [], tail=leaves.tail[index], finish_id=leaves.bursts["end_id"][last - 1])
        self._nodes[node] |= {"first": self._first_burst[window] + first, "count": last - first}
        return node

    def _add_derived(self, window: int, index: int) -> int:
        spec = self.windows[window]
        parents, shifts = list(spec.parents), list(spec.shifts)
        ranks = [LEVELS.index(self.windows[parent].level) for parent in parents]
        is_controlled = spec.operation in CONTROLLEDS
        if ranks[0] < ranks[1]:
            if is_controlled:
                raise NotImplementedError(f"{spec.operation} with data of a coarser level than the control")
            parents.reverse()  # Paraver swaps the windows and how far they are shifted, but neither the factors nor
            shifts.reverse()  # whether each is shifted
        shifted = [shift != 0 for shift in spec.shifts]
        if is_controlled and parents[0] == parents[1]:
            shifted[1] = any(shifted)
        children = []
        for parent, shift, is_shifted in zip(parents, shifts, shifted, strict=True):
            node = self.make_top(parent, self.objects.find_ancestor(spec.finest, index, self.windows[parent].level))
            if is_shifted:
                node = self._add(SHIFT, [node], shift=shift, parameter_0=self._ring)
                self._ring += abs(shift) + 1
            children.append(node)
        codes = CONTROLLEDS if is_controlled else DERIVEDS
        factors = {f"factor_{i}": factor for i, factor in enumerate(spec.factors)}
        return self._add(
            CONTROLLED if is_controlled else DERIVED, children, code=codes.index(spec.operation), **factors
        )
