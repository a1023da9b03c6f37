"""Checks the objects that a window shows: its window_object lines, and whether they fit the trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nsys2prv_ng.paraver.checker.cfg_functions import RESOURCE_LEVELS
from nsys2prv_ng.paraver.checker.cfg_lists import Selection
from nsys2prv_ng.paraver.checker.cfg_reader import REFUSES, CfgWindow
from nsys2prv_ng.paraver.read.header_reader import TraceHeader
from nsys2prv_ng.paraver.read.problems import Findings

Selections = dict[tuple[str, tuple[int, ...]], Selection]
"""The selections of a window by level and by the larger objects that contain the chosen ones."""

_PATHS = {
    "appl": ("appl",),
    "task": ("appl", "task"),
    "thread": ("appl", "task", "thread"),
    "node": ("node",),
    "cpu": ("node", "cpu"),
}
"""For each level, the levels at which its rows can be hidden: itself, and the levels of the objects that contain it."""


def check_selections(window: CfgWindow, level: str, header: TraceHeader, findings: Findings) -> None:
    """Check the window_object lines of a window that Paraver shows at `level`."""
    seen: Selections = {}
    level_line = window.get_entry("window_level")
    for selection in window.selections:
        if selection.level == level and level_line is not None and level_line.line > selection.line:
            findings.add(selection.line, "window_object stands above window_level: Paraver reads it as for threads")
        if (selection.level, selection.within) in seen:
            findings.add(selection.line, f"objects of the same {selection.level} are chosen twice: the last counts")
        seen[selection.level, selection.within] = selection
        _check_marks(selection, level, findings)
        _check_size(selection, header, findings)
    if header.applications and seen and not any(_is_chosen(seen, level, row) for row in _iterate_rows(level, header)):
        findings.add(window.selections[0].line, "no object is chosen: Paraver shows no row")


def _check_marks(selection: Selection, level: str, findings: Findings) -> None:
    """Check that objects are marked by 1 and 0 at the level of the window, and by All and None at other levels."""
    known = ("0", "1") if selection.level == level else ("All", "None")
    wrong = next((mark for mark in selection.marks if mark not in known), None)
    if wrong is not None:
        consequence = REFUSES if selection.level == level else "Paraver takes it for All"
        message = f"objects of level {selection.level} in a window of level {level} are marked {' or '.join(known)}"
        findings.add(selection.line, f"{message}, not '{wrong[:20]}': {consequence}")


def _check_size(selection: Selection, header: TraceHeader, findings: Findings) -> None:
    """Check that a line marks no more objects than there are: Paraver ignores such lines, and crashes on some."""
    if not header.applications:
        return
    size = _get_size(selection, header)
    name = ".".join(str(index + 1) for index in selection.within)
    if size is None:
        findings.add(selection.line, f"{selection.level} of {name}, which the trace does not have: Paraver ignores it")
    elif len(selection.marks) > size:
        message = f"{len(selection.marks)} objects of level {selection.level}, the trace has {size} there"
        findings.add(selection.line, f"{message}: Paraver ignores the line")


def _get_size(selection: Selection, header: TraceHeader) -> int | None:
    """Return the number of objects to choose from; None if the trace lacks the object that would contain them."""
    larger: Sequence[object] = header.cpus if selection.level in RESOURCE_LEVELS else header.applications
    if not selection.within:
        return len(larger)
    if selection.within[0] >= len(larger):
        return None
    if selection.level == "cpu":
        return header.cpus[selection.within[0]]
    tasks = header.applications[selection.within[0]]
    if selection.level == "task":
        return len(tasks)
    return tasks[selection.within[1]][0] if selection.within[1] < len(tasks) else None


def _iterate_rows(level: str, header: TraceHeader) -> Iterator[tuple[int, ...]]:
    """Yield the indices of each row of a level, preceded by the indices of the objects that contain it."""
    if level == "node":
        yield from ((node,) for node in range(len(header.cpus)))
    elif level == "cpu":
        yield from ((node, cpu) for node, cpus in enumerate(header.cpus) for cpu in range(cpus))
    elif level == "appl":
        yield from ((application,) for application in range(len(header.applications)))
    elif level in ("task", "thread"):
        for application, tasks in enumerate(header.applications):
            for task, (threads, _) in enumerate(tasks):
                if level == "task":
                    yield application, task
                else:
                    yield from ((application, task, thread) for thread in range(threads))
    else:
        yield ()


def _is_chosen(selections: Selections, level: str, row: tuple[int, ...]) -> bool:
    """Return whether neither a row nor an object that contains it is hidden. Objects that no line marks are shown."""
    for depth, name in enumerate(_PATHS.get(level, ())):
        selection = selections.get((name, row[:depth]))
        if selection is not None and selection.marks[row[depth] : row[depth] + 1] in (("0",), ("None",)):
            return False
    return True
