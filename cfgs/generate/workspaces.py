"""Writes the presets as menus of wxParaver, by question: `workspaces.xml`, an XML archive of boost's serialization.

wxParaver shows a workspace, as a submenu of Hints, if the trace has one of its event types. Its own workspaces are in
`$PARAVER_HOME/share/workspaces.xml`, a user's workspaces in `~/.paraver/workspaces.xml`. The archive describes a class
with a number at its first occurrence, so the order of the elements counts.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from cfgs.generate.paraver_cfg import Preset
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType

_EVENT = 2
"""wxParaver's number for workspaces that depend on event types; 1 is for workspaces that depend on states."""


class Menu(NamedTuple):
    """A menu: its question, event types (the trace must have one of them), and the folders of its presets, in order."""

    question: str
    event_types: Sequence[EventType | int]
    folders: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"nsys: {self.question}"

    def choose(self, presets: Sequence[Preset]) -> list[Preset]:
        """Return the presets of this menu: folder by folder, in the order of their declarations."""
        own = [preset for preset in presets if preset.menu == self.question]
        return sorted(own, key=lambda preset: self.folders.index(preset.folder))


MENUS = [
    Menu(
        "What do the GPUs do?",
        (types.CUDA_API, types.MEMORY_OPERATION, types.KERNEL, types.NCCL_KERNEL, types.GRAPH_LAUNCH),
        ("views", "basics", "analysis"),
    ),
    Menu("Why are GPUs idle?", (types.GPU_ACTIVITY, types.GPU_IDLE_STRETCH), ("analysis", "basics")),
    Menu("Who waits for whom?", (types.OPERATION_PART, types.GPU_ACTIVITY_WITH_WAITS), ("analysis",)),
    Menu("What is on the critical path?", (types.CRITICAL_PATH,), ("analysis", "views")),
    Menu("How efficient is the job?", (types.GPU_ACTIVITY, types.CUDA_API, *types.MPI_CALLS.values()), ("model",)),
    Menu(
        "What is communicated?",
        (types.NCCL_KERNEL, families.NVTX_NCCL, *types.MPI_CALLS.values(), types.UCX_CALL),
        ("analysis", "basics", "hwcounters"),
    ),
    Menu("Which kernels take the time?", (types.KERNEL, types.GRAPH_LAUNCH), ("basics", "analysis")),
    Menu(
        "Which memory is used and copied?",
        (types.MEMORY_OPERATION, types.ALLOCATED_BYTES, types.GPU_PAGE_FAULT, types.CPU_PAGE_FAULT),
        ("basics", "analysis", "views"),
    ),
    Menu(
        "What does the host do?",
        (
            types.CUDA_API,
            families.NVTX_DEFAULT,
            types.OS_RUNTIME,
            types.SYSTEM_CALL,
            types.SAMPLED_FUNCTIONS[0],
            types.PROGRAM_PYTHON,
            types.SAMPLED_PYTHON[0],
            families.NVTX_GIL,
            *types.OPENACC,
            types.DIAGNOSTIC,
        ),
        ("basics", "analysis"),
    ),
    Menu("Why are some steps slow?", (types.STEP,), ("analysis",)),
    Menu("Is the hardware busy?", families.GPU_METRIC_NUMBERS, ("hwcounters",)),
]


def format_workspaces(presets: Sequence[Preset]) -> str:
    """Return the text of the file. Paths are relative to the folder of the presets.

    Raises ValueError if no menu has the question or the folder of a preset.
    """
    unknown = {preset.menu for preset in presets} - {menu.question for menu in MENUS}
    if unknown:
        raise ValueError(f"no menu has the question {unknown}")
    return "\n".join([*_format_archive(presets), ""])


def _format_archive(presets: Sequence[Preset]) -> Iterator[str]:
    new_class = _Classes()
    yield '<?xml version="1.0" encoding="UTF-8" standalone="yes" ?>'
    yield "<!DOCTYPE boost_serialization>"
    yield '<boost_serialization signature="serialization::archive" version="17">'
    yield f"<workspace_manager{new_class('manager', 0)}>"
    yield f"<workspaces{new_class('map', 0)}>"
    yield from _format_size(len(MENUS), 0)
    # boost writes a map in key order.
    for menu in sorted(MENUS, key=lambda menu: menu.name):
        yield f"<item{new_class('pair of a map', 0)}>"
        yield f"<first>{_escape(menu.name)}</first>"
        yield f"<second{new_class('workspace', 2)}>"
        yield f"<name>{_escape(menu.name)}</name>"
        yield f"<type>{_EVENT}</type>"
        yield f"<autoTypes{new_class('list of types', 0)}>"
        yield from _format_size(len(menu.event_types), 1)
        for event_type in menu.event_types:
            number = event_type if isinstance(event_type, int) else event_type.number
            yield f"<item{new_class('type', 1)}>"
            yield f"<type>{_EVENT}</type>"
            value = base64.b64encode(struct.pack("<iI", _EVENT, number)).decode()
            yield from ("<WorkspaceValue>", value, "</WorkspaceValue>", "</item>")
        yield "</autoTypes>"
        yield f"<hintCFGs{new_class('list of presets', 0)}>"
        chosen = menu.choose(presets)
        yield from _format_size(len(chosen), 0)
        for preset in chosen:
            yield f"<item{new_class('preset', 0)}>"
            yield f"<first>{_escape(preset.path)}</first>"
            yield f"<second>{_escape(preset.summary)}</second>"
            yield "</item>"
        yield from ("</hintCFGs>", "</second>", "</item>")
    yield "</workspaces>"
    yield f"<workspacesOrder{new_class('list of names', 0)}>"
    yield from _format_size(len(MENUS), 0)
    for menu in MENUS:
        yield f"<item>{_escape(menu.name)}</item>"
    yield from ("</workspacesOrder>", "</workspace_manager>", "</boost_serialization>")


def _format_size(count: int, version: int) -> tuple[str, str]:
    return f"<count>{count}</count>", f"<item_version>{version}</item_version>"


def _escape(text: str) -> str:
    return escape(text, {"'": "&apos;", '"': "&quot;"})


class _Classes:
    """The classes of an archive, each described with the next number at its first occurrence."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def __call__(self, name: str, version: int) -> str:
        """Return the attributes of an object of this class; none if the class has occurred before."""
        if name in self._known:
            return ""
        self._known.add(name)
        return f' class_id="{len(self._known) - 1}" tracking_level="0" version="{version}"'
