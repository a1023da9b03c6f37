"""Declares presets that show several kinds of event together."""

from __future__ import annotations

from cfgs.generate import colours
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
    codes,
    divided,
    only,
    product,
)
from cfgs.generate.shared import (
    COMPUTE_CLASSES,
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
    in_class,
    kernel_names,
    names,
    ranks,
)
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families, palette
from nsys2prv_ng.paraver.value_tables import COMMUNICATION_CLASSES

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
    "CUDA activity on every row, by colour: API calls, kernels, communication, graphs and memory operations",
    """
Open this window first. Host threads show CUDA API calls (light blue). Streams show compute kernels (blue),
communication (orange: kernels of NCCL and other libraries, and copies between GPUs), copies and sets (purple), and
opaque CUDA graphs, which were traced as a whole (pale blue). Dark: none of these. Look for dark streams (idle GPU), for
orange while nothing is blue (exposed communication), and for host threads that are light blue all the time (waiting or
launch-bound).
For names see basics/cuda_api, basics/kernels, basics/nccl and basics/memory_operations.
""",
    cuda_kinds("CUDA activities"),
    menu="What do the GPUs do?",
)

VIEWS.add(
    "nvtx_on_gpu",
    "NVTX ranges projected onto the streams on which they launched work; innermost range",
    """
On a stream, a range lasts from the start of the first operation launched in it to the end of the last. It shows when
the GPU ran the work of the range, which is later than the launch on the host (basics/nvtx).
First window: ranges of the default domain. Second window: ranges that overlap the first ones on the stream without
nesting, such as ranges of other threads. For other domains choose the event type "NVTX (domain) range on GPU, lane 1"
in the filter.
""",
    _make_ranges_on_gpu("NVTX ranges on streams", 0),
    _second_lane,
    hidden_first=(_second_lane,),
    menu="What do the GPUs do?",
)

VIEWS.add(
    "per_gpu_activity",
    "Activity of each GPU over all streams: compute, communication, overlap, memory operations, or idle",
    """
All streams of all processes together. Blue: compute. Orange: exposed communication (NCCL kernels). Green: overlapped
communication. Purple: memory operations only. A lighter blue, orange or green is the same with concurrent memory
operations.
First window: one row per rank; dark is idle. If a rank has several GPUs, its row shows the highest of their values.
Second window: the same for each GPU, on the rows "Metrics GPUn"; select them with the regular expression Metrics.
Light grey: idle between the first and the last operation of the GPU.
""",
    activity_of_ranks(),
    activity(),
    menu="What do the GPUs do?",
)

VIEWS.add(
    "per_gpu_waits",
    "Activity of each GPU over all streams, with communication split into wait and data transfer",
    """
All streams of all processes together. Rust: exposed wait for a straggler, which is lost time. Orange: exposed transfer.
Green: transfer overlapped by compute. Blue: compute only. Pale blue: compute while an NCCL kernel waits. Purple: memory
operations only. Pale orange and dark green: unclassified communication, exposed and overlapped.
First window: one row per rank; dark is idle. If a rank has several GPUs, its row shows the highest of their values.
Second window: the same for each GPU, on the rows "Metrics GPUn"; select them with the regular expression Metrics.
Light grey: idle between the first and the last operation of the GPU.
analysis/waited_for shows the stragglers; analysis/exposed_communication adds up the time.
""",
    activity_with_waits_of_ranks("Activity of the GPU of each rank, with waits", GPU_IDLE),
    activity_with_waits(),
    menu="What do the GPUs do?",
)

_OPERATIONS = codes(colours.MEMORY_OPERATIONS)
_on_path = Window("On the critical path", FLAG, events=only(types.CRITICAL_PATH), compose=SIGN)
_compute = kernel_names("Compute kernels", COMPUTE_CLASSES)
_others = kernel_names("Communication kernels except NCCL's", COMMUNICATION_CLASSES)
_copies = product(
    "Copies between GPUs",
    _OPERATIONS,
    Window("Memory operations", _OPERATIONS, events=only(types.MEMORY_OPERATION)),
    in_class("In communication", COMMUNICATION_CLASSES),
)
_communication = names("NCCL kernels", only(types.NCCL_KERNEL))
VIEWS.add(
    "on_critical_path",
    "Compute and communication on the critical path, by stream and name",
    """
First window: compute kernels. Second and third window: kernels of other libraries that communicate, and copies between
GPUs. Last window: NCCL kernels, without their wait for a straggler, which is not on the path.
A kernel or copy is shown while the critical path runs on its stream; all other time is dark. Speeding up what is shown
here can speed up the job. Speeding up what is dark here cannot.
analysis/critical_path shows the whole path, basics/kernels and basics/nccl all kernels.
""",
    product("Compute kernels on the critical path", NAMES, _compute, _on_path),
    product("Other communication kernels on the critical path", NAMES, _others, _on_path),
    product("Copies between GPUs on the critical path", _OPERATIONS, _copies, _on_path),
    product("NCCL kernels on the critical path", NAMES, _communication, _on_path),
    hidden_first=(_compute, _others, _copies, _communication, _on_path),
    menu="What is on the critical path?",
)

_waits = ranks("Exposed wait [%]", PERCENT, only(types.GPU_WAITS_EXPOSED))
_exposed = ranks("Exposed communication [%]", PERCENT, only(types.GPU_COMMUNICATES_EXPOSED))
VIEWS.add(
    "overview",
    "Share of compute, exposed communication and exposed wait on each rank's GPU, in time bins (%)",
    """
For traces of --overview-trace. Each value is the share of a time bin in which any stream of the GPU was active in this
way. Bins lose nothing, however long they are: the average over a time span is the share of that span.
First window: compute. Second window: exposed communication. Third window: the part of it that waits for a straggler.
Look for times and ranks that differ from the others, and translate that time in full with --time.
One row per rank, which shows the highest value of its GPUs. For one row per GPU choose the level thread in the window's
properties, and select the rows Metrics.
""",
    ranks("Compute [%]", PERCENT, only(types.GPU_COMPUTES)),
    _exposed,
    _waits,
    hidden_first=(_waits, _exposed),
    menu="What do the GPUs do?",
)

VIEWS.add(
    "memory_level",
    "CUDA memory in use on each rank (MiB): device, pinned and managed memory over time, and peak device memory",
    """
First window: device memory. Second window: pinned host memory. Third window: managed memory. Histogram: peak device
memory of each rank. Each row is the sum over all GPUs of the rank.
Colours run from the lowest level in the trace (green) to the highest (blue), which can be close to each other: the
histogram and the information panel show the amounts. A single colour means that all levels are equal and constant.
Dark: no memory in use, or before the capture of the rank. The level is what the process has reserved. Framework
allocators take memory from CUDA in large blocks, so the level rarely changes after the first step.
Needs --cuda-memory-usage=true when profiling.
""",
    _device,
    _pinned,
    _managed,
    Histogram("Peak device memory [MiB]", _has_device, "Maximum", maximum=1, data=_device),
    hidden_first=(_managed, _pinned),
    menu="Which memory is used and copied?",
)

VIEWS.add(
    "node_view",
    "Number of busy, computing and communicating GPUs of each node",
    """
One row per node. First window: GPUs with any kernel, copy or set. Second window: GPUs in compute kernels. Third
window: GPUs in NCCL kernels. The value is the number of GPUs; more GPUs are lighter. A node that lags behind the others
has a straggler, a slow network or a clock error.
""",
    gpus("Busy GPUs of each node", IN_ANY, palette.OVERLAP, level=NODE),
    gpus("Computing GPUs of each node", IN_COMPUTE, palette.COMPUTE, level=NODE),
    gpus("Communicating GPUs of each node", IN_COMMUNICATION, palette.COMMUNICATION, level=NODE),
    menu="What do the GPUs do?",
)
