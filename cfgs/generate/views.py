"""Declares presets that show several kinds of event together."""

from __future__ import annotations

from cfgs.generate.paraver_cfg import (
    GRADIENT,
    NODE,
    PERCENT,
    SIGN,
    TASK,
    Folder,
    Function,
    Histogram,
    Window,
    divided,
    only,
    product,
)
from cfgs.generate.shared import (
    FLAG,
    GPU_IDLE,
    IN_ANY,
    IN_COMMUNICATION,
    IN_COMPUTE,
    NAMES,
    activity,
    activity_of_ranks,
    activity_with_waits,
    activity_with_waits_of_ranks,
    cuda_kinds,
    gpus,
    names,
    ranks,
)
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families, palette

_MIB = 2**20


def _make_ranges_on_gpu(name: str, lane: int) -> Window:
    event_type = families.make_nvtx_on_gpu("", lane)
    return names(name, only(event_type, families.NVTX_DEFAULT + event_type.number))


def _make_memory_level(name: str, kind: str, *top: Function) -> Window:
    """Show the memory of a kind that each rank uses, in MiB.

    Paraver fits the scale from the least level except 0 to the greatest.
    """
    (event_type,) = (level for level in types.MEMORY_LEVELS if level.label.endswith(f": {kind}"))
    return Window(name, GRADIENT, events=only(event_type), level=TASK, top=(divided(_MIB), *top))


_second_lane = _make_ranges_on_gpu("NVTX ranges on streams, second lane", 1)
_device = _make_memory_level("Device memory in use [MiB]", "device")
_has_device = _make_memory_level("Has device memory in use", "device", SIGN)
_pinned = _make_memory_level("Pinned host memory in use [MiB]", "pinned")
_managed = _make_memory_level("Managed memory in use [MiB]", "managed")

VIEWS = Folder("views")
VIEWS.add(
    "cuda_activities",
    "What CUDA does on every row, by colour: API calls, kernels, NCCL kernels, graphs and memory operations",
    """
Open this window first. Host threads show CUDA API calls (light blue). Streams show compute kernels (blue), NCCL
kernels (orange), copies and sets (purple), and graphs that were traced as a whole (pale blue). Dark is none of these.
Look for dark streams (a GPU without work), for orange while nothing is blue (communication that nothing hides), and
for host threads that are light blue all the time (waiting, or launching too little work at a time).
The names are in basics/cuda_api, basics/kernels, basics/nccl and basics/memory_operations.
""",
    cuda_kinds("CUDA activities"),
)

VIEWS.add(
    "nvtx_on_gpu",
    "NVTX ranges on the streams that they launched work on; where ranges nest, the innermost",
    """
On a stream, a range lasts from the start of the first operation launched in it to the end of the last. It shows when
the GPU did what the program names, which is later than when the host launched it (basics/nvtx).
First window: ranges of the default domain. Second window: ranges that overlap those on the stream without nesting,
such as ranges of other threads. For other domains choose the event type "NVTX (domain) range on GPU, lane 1" in the
filter.
""",
    _make_ranges_on_gpu("NVTX ranges on streams", 0),
    _second_lane,
    hidden_first=(_second_lane,),
)

VIEWS.add(
    "per_gpu_activity",
    "What each GPU does as a whole: compute, communication, both at once, memory operations, or idle",
    """
All streams of all processes together. Blue is compute, orange is communication (NCCL kernels), green is both at once
(hidden communication), purple is memory operations alone. A lighter blue, orange or green is the same with memory
operations beside it.
First window: one row per rank; dark is idle. If a rank has several GPUs, its row shows the highest of their values.
Second window: the same for each GPU, on the rows "Metrics GPUn"; select them with the regular expression Metrics.
Light grey is idle between the first and the last operation of the GPU.
""",
    activity_of_ranks(),
    activity(),
)

VIEWS.add(
    "per_gpu_waits",
    "What each GPU does as a whole, with communication split into waiting for a rank and moving data",
    """
All streams of all processes together. Rust is waiting for a rank while nothing is computed: this time is lost. Orange
is moving data while nothing is computed, green is moving data behind compute. Blue is compute alone, pale blue is
compute while an NCCL kernel waits for a rank. Purple is memory operations alone. Pale orange and dark green are
communication that could not be split: alone, and behind compute.
First window: one row per rank; dark is idle. If a rank has several GPUs, its row shows the highest of their values.
Second window: the same for each GPU, on the rows "Metrics GPUn"; select them with the regular expression Metrics.
Light grey is idle between the first and the last operation of the GPU.
analysis/waited_for shows who is waited for; analysis/exposed_communication adds up the time.
""",
    activity_with_waits_of_ranks("Activity of the GPU of each rank, with waits", GPU_IDLE),
    activity_with_waits(),
)

_on_path = Window("On the critical path", FLAG, events=only(types.CRITICAL_PATH), compose=SIGN)
_compute = names("Compute kernels", only(types.KERNEL))
_communication = names("NCCL kernels", only(types.NCCL_KERNEL))
VIEWS.add(
    "on_critical_path",
    "Kernels of each stream while they are on the critical path, by name: compute kernels and NCCL kernels",
    """
First window: compute kernels. Second window: NCCL kernels, of which the part that waits for another rank is not on the
path. A kernel is shown while the critical path runs on its stream, and all other time is dark. If such a kernel gets
faster, so may the job; if a kernel gets faster that is dark here, the job does not.
analysis/critical_path shows the whole path, basics/kernels and basics/nccl all kernels.
""",
    product("Compute kernels on the critical path", NAMES, _compute, _on_path),
    product("NCCL kernels on the critical path", NAMES, _communication, _on_path),
    hidden_first=(_compute, _communication, _on_path),
)

_waits = ranks("Waits for a rank [%]", PERCENT, only(types.GPU_WAITS_EXPOSED))
_exposed = ranks("Communicates, and computes nothing [%]", PERCENT, only(types.GPU_COMMUNICATES_EXPOSED))
VIEWS.add(
    "overview",
    "What the GPU of each rank does in steps of time, in percent: compute, exposed communication, waiting for a rank",
    """
For traces of --overview-trace. Each value is the part of a step of time in which any stream of the GPU did it, so that
nothing is lost however long a step is: the mean over a time is the share of that time.
First window: compute. Second window: communication while nothing is computed. Third window: the part of it that waits
for a rank. Look for times and ranks that differ from the others, and translate that time whole with --time.
One row per rank, which shows the highest of its GPUs; for one row per GPU choose the level thread in the window's
properties, and select the rows Metrics.
""",
    ranks("Computes [%]", PERCENT, only(types.GPU_COMPUTES)),
    _exposed,
    _waits,
    hidden_first=(_waits, _exposed),
)

VIEWS.add(
    "memory_level",
    "CUDA memory that each rank has in use (MiB): device, pinned and managed over time, and peak of device memory",
    """
First window: device memory. Second window: pinned host memory. Third window: managed memory. Histogram: peak of device
memory of each rank. Each row is the sum over all GPUs of the rank.
Colours run from the lowest level in the trace (green) to the highest (blue), which can be near each other: the
histogram and the information panel have the amounts. One colour means that no level changes and that all are equal.
Dark is no memory in use, or time before the capture of the rank. The level is what the process has reserved: allocators
of frameworks take memory from CUDA in large blocks, so that it changes rarely after the first step.
Needs --cuda-memory-usage=true when profiling.
""",
    _device,
    _pinned,
    _managed,
    Histogram("Peak of device memory [MiB]", _has_device, "Maximum", maximum=1, data=_device),
    hidden_first=(_managed, _pinned),
)

VIEWS.add(
    "node_view",
    "Number of GPUs of each node that are busy, that compute and that communicate",
    """
One row per node. First window: GPUs with any kernel, copy or set. Second window: GPUs in compute kernels. Third
window: GPUs in NCCL kernels. The value is the number of GPUs; more GPUs are lighter. A node that lags behind the
others has a slow rank, network or clock.
""",
    gpus("Busy GPUs of each node", IN_ANY, palette.OVERLAP, level=NODE),
    gpus("Computing GPUs of each node", IN_COMPUTE, palette.COMPUTE, level=NODE),
    gpus("Communicating GPUs of each node", IN_COMMUNICATION, palette.COMMUNICATION, level=NODE),
)
