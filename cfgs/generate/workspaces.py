"""Writes the presets as menus of wxParaver, by question: `workspaces.xml`, an XML archive of boost's serialization.

wxParaver shows a workspace, as a submenu of Hints, if the trace has one of its event types. Its own workspaces are in
`$PARAVER_HOME/share/workspaces.xml`, a user's workspaces in `~/.paraver/workspaces.xml`. The archive describes a class
with a number at its first occurrence, so the order of the elements counts.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from cfgs.generate.paraver_cfg import Preset
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType

_EVENT = 2
"""wxParaver's number for workspaces that depend on event types; 1 is for workspaces that depend on states."""


@dataclass(frozen=True)
class Workspace:
    """A menu: its name, event types (the trace must have one of them), and paths of presets."""

    name: str
    event_types: tuple[int, ...]
    presets: tuple[str, ...]


def _declare(question: str, event_types: Sequence[EventType | int], **presets: str) -> Workspace:
    """Return a workspace; `presets` are names of presets by folder, separated by blanks."""
    numbers = tuple(t if isinstance(t, int) else t.number for t in event_types)
    paths = tuple(f"{folder}/{name}.cfg" for folder, names in presets.items() for name in names.split())
    return Workspace(f"nsys: {question}", numbers, paths)


WORKSPACES = [
    _declare(
        "What do the GPUs do?",
        (types.CUDA_API, types.MEMORY_OPERATION, types.KERNEL, types.NCCL_KERNEL, types.GRAPH_LAUNCH),
        views="cuda_activities per_gpu_activity per_gpu_waits overview node_view nvtx_on_gpu",
        basics="states gpu_contexts",
        analysis="gpu_active gpu_useful gpu_useful_sumtime_2dh",
    ),
    _declare(
        "Why are GPUs idle?",
        (types.GPU_ACTIVITY, types.GPU_IDLE_STRETCH),
        analysis="gpu-gaps gap_histogram kernels-inflight queue_delay sampled_while_gpu_idle",
        basics="launch_lines",
    ),
    _declare(
        "Who waits for whom?",
        (types.OPERATION_PART, types.GPU_ACTIVITY_WITH_WAITS),
        analysis="waited_for nccl_waiting lateness exposed_communication pipeline_bubble",
    ),
    _declare(
        "What is on the critical path?",
        (types.CRITICAL_PATH,),
        analysis="critical_path critical_path_profile",
        views="on_critical_path",
    ),
    _declare(
        "How efficient is the job?",
        (types.GPU_ACTIVITY, types.CUDA_API, *types.MPI_CALLS.values()),
        model="gpu_efficiency gpu_efficiency_by_step host_efficiency host_efficiency_by_step",
    ),
    _declare(
        "What is communicated?",
        (types.NCCL_KERNEL, families.NVTX_NCCL, *types.MPI_CALLS.values(), types.UCX_CALL),
        analysis="overlap-communication-compute-2dh-timeline concurrency_of_computation_during_nccl "
        "nccl_kernel_concurrency nccl_calls_2dh",
        basics="nccl mpi ucx",
        hwcounters="network_cards network_plugin",
    ),
    _declare(
        "Which kernels take the time?",
        (types.KERNEL, types.GRAPH_LAUNCH),
        basics="kernels graphs",
        analysis="kernel-timepercent kernel_classes kernels_running in_useful_kernel "
        "evolution_of_nb_threads_per_kernel gpu_time_by_range",
    ),
    _declare(
        "Which memory is used and copied?",
        (types.MEMORY_OPERATION, types.ALLOCATED_BYTES, types.GPU_PAGE_FAULT, types.CPU_PAGE_FAULT),
        basics="memory_operations unified_memory",
        analysis="memcpy_sizes",
        views="memory_level",
    ),
    _declare(
        "What does the host do?",
        (
            types.CUDA_API,
            families.NVTX_DEFAULT,
            types.OS_RUNTIME,
            types.SYSTEM_CALL,
            types.SAMPLED_FUNCTIONS[0],
            types.SAMPLED_PYTHON[0],
            *types.OPENACC,
            types.DIAGNOSTIC,
        ),
        basics="nvtx cuda_api os_runtime system_calls sampled_functions sampled_python openacc video diagnostics",
        analysis="iteration_time",
    ),
    _declare("Why are some steps slow?", (types.STEP,), analysis="slow_steps slow_kernels"),
    _declare(
        "Is the hardware busy?",
        families.GPU_METRIC_NUMBERS,
        hwcounters="sm_active sm_issue tensor_active dram_bandwidth nvlink pcie activity_by_kernel_class "
        "active_in_kernels links_in_transfers",
    ),
]


def format_workspaces(presets: Sequence[Preset]) -> str:
    """Return the text of the file. Paths are relative to the folder of the presets.

    Raises KeyError if a workspace names an unknown preset.
    """
    summaries = {preset.path: preset.summary for preset in presets}
    return "\n".join([*_format_archive(summaries), ""])


def _format_archive(summaries: dict[str, str]) -> Iterator[str]:
    new_class = _Classes()
    yield '<?xml version="1.0" encoding="UTF-8" standalone="yes" ?>'
    yield "<!DOCTYPE boost_serialization>"
    yield '<boost_serialization signature="serialization::archive" version="17">'
    yield f"<workspace_manager{new_class('manager', 0)}>"
    yield f"<workspaces{new_class('map', 0)}>"
    yield from _format_size(len(WORKSPACES), 0)
    # boost writes a map in key order.
    for workspace in sorted(WORKSPACES, key=lambda workspace: workspace.name):
        yield f"<item{new_class('pair of a map', 0)}>"
        yield f"<first>{_escape(workspace.name)}</first>"
        yield f"<second{new_class('workspace', 2)}>"
        yield f"<name>{_escape(workspace.name)}</name>"
        yield f"<type>{_EVENT}</type>"
        yield f"<autoTypes{new_class('list of types', 0)}>"
        yield from _format_size(len(workspace.event_types), 1)
        for number in workspace.event_types:
            yield f"<item{new_class('type', 1)}>"
            yield f"<type>{_EVENT}</type>"
            value = base64.b64encode(struct.pack("<iI", _EVENT, number)).decode()
            yield from ("<WorkspaceValue>", value, "</WorkspaceValue>", "</item>")
        yield "</autoTypes>"
        yield f"<hintCFGs{new_class('list of presets', 0)}>"
        yield from _format_size(len(workspace.presets), 0)
        for path in workspace.presets:
            yield f"<item{new_class('preset', 0)}>"
            yield f"<first>{_escape(path)}</first>"
            yield f"<second>{_escape(summaries[path])}</second>"
            yield "</item>"
        yield from ("</hintCFGs>", "</second>", "</item>")
    yield "</workspaces>"
    yield f"<workspacesOrder{new_class('list of names', 0)}>"
    yield from _format_size(len(WORKSPACES), 0)
    for workspace in WORKSPACES:
        yield f"<item>{_escape(workspace.name)}</item>"
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
