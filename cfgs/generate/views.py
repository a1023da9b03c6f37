"""Presets that show several kinds of event together."""

from __future__ import annotations

from cfgs.generate import palette
from cfgs.generate.paraver_cfg import GRADIENT, NODE, TASK, Folder, Window, divided, only
from cfgs.generate.shared import (
    IN_ANY,
    IN_COMMUNICATION,
    IN_COMPUTE,
    activity,
    activity_of_ranks,
    cuda_kinds,
    gpus,
    names,
)
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families

_MIB = 2**20


def _make_ranges_on_gpu(name: str, lane: int) -> Window:
    event_type = families.make_nvtx_on_gpu("", lane)
    return names(name, only(event_type, families.NVTX_DEFAULT + event_type.number))


def _make_memory_level(name: str, kind: str) -> Window:
    (event_type,) = (each for each in types.MEMORY_LEVELS if each.label.endswith(f": {kind}"))
    return Window(name, GRADIENT, events=only(event_type), level=TASK, top=(divided(_MIB),))


_second_lane = _make_ranges_on_gpu("NVTX ranges on streams, second lane", 1)
_pinned = _make_memory_level("Pinned host memory in use [MiB]", "pinned")
_managed = _make_memory_level("Managed memory in use [MiB]", "managed")

VIEWS = Folder("views")
VIEWS.add(
    "cuda_activities",
    "What CUDA does everywhere: API calls, kernels, NCCL kernels, graphs and memory operations by colour",
    """
The window to open first. Host threads show CUDA API calls (light blue); streams show compute kernels (blue), NCCL
kernels (orange), copies and sets (purple) and graphs that were traced as a whole (pale blue). Dark is none of them.
Look for streams that are dark (GPUs without work), orange while nothing is blue (communication that nothing hides),
and host threads that are light blue all the time (waiting, or launching too little work at a time).
Names are in basics/cuda_api, basics/kernels, basics/nccl and basics/memory_operations.
""",
    cuda_kinds("CUDA activities"),
)

VIEWS.add(
    "nvtx_on_gpu",
    "NVTX ranges on the streams that they launched work on, the innermost at each time",
    """
A range lasts from the begin of the first operation that was launched in it on the stream to the end of the last. So
it shows when the GPU did what the program names, which is later than when the host launched it (basics/nvtx).
First window: ranges of the default domain. Second window: those that overlap them on the stream without nesting, as
of other threads. For other domains choose the event type "NVTX (domain) range on GPU, lane 1" in the filter.
""",
    _make_ranges_on_gpu("NVTX ranges on streams", 0),
    _second_lane,
    hidden_first=(_second_lane,),
)

VIEWS.add(
    "per_gpu_activity",
    "What each GPU does as a whole: compute, communication, memory, both at once, or idle",
    """
First window: a row for each rank; of several GPUs the highest value; dark is idle. Second window: the same on the
rows "Metrics GPUn", one for each GPU; select those with the regular expression Metrics. Light grey is idle between the
first and the last operation of the GPU.
All streams of all processes together: compute (blue), communication in NCCL kernels (orange), both at once (green,
hidden communication), memory operations alone (purple; a lighter colour is the same with memory operations beside).
""",
    activity_of_ranks(),
    activity(),
)

VIEWS.add(
    "memory_level",
    "Memory of CUDA in use by each rank over time (MiB): device, pinned and managed",
    """
First window: device memory. Second: pinned host memory. Third: managed memory. Levels of all GPUs of a rank are
added. Allocators of frameworks take memory from CUDA in large blocks: a level is what the process has reserved.
Needs --cuda-memory-usage=true when profiling.
""",
    _make_memory_level("Device memory in use [MiB]", "device"),
    _pinned,
    _managed,
    hidden_first=(_managed, _pinned),
)

VIEWS.add(
    "node_view",
    "How many GPUs of each node are busy, compute and communicate",
    """
A row for each node. First window: GPUs with any kernel, copy or set. Second: GPUs in compute kernels. Third: GPUs in
NCCL kernels. The more GPUs, the lighter; the value is the number. Nodes that lag behind others have a slow rank,
network or clock.
""",
    gpus("Busy GPUs of each node", IN_ANY, palette.OVERLAP, level=NODE),
    gpus("Computing GPUs of each node", IN_COMPUTE, palette.COMPUTE, level=NODE),
    gpus("Communicating GPUs of each node", IN_COMMUNICATION, palette.COMMUNICATION, level=NODE),
)
