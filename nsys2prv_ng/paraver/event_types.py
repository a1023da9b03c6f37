"""Defines every event type of a trace: number, label, unit, precision, values, and the source that writes it.

The .pcf and the documentation's table are made from this module. Numbers on which nsys2prv's cfgs and BSC's
BasicAnalysis rely have the same events here (63000000 ...); all other numbers are in free ranges beside them. Types
without a fixed number are in `families`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from nsys2prv_ng import source_names
from nsys2prv_ng.paraver import value_tables as tables
from nsys2prv_ng.paraver.event_type import EventType

# ---- CUDA API --------------------------------------------------------------------------------------------------------
CUDA_API = EventType(63000000, "CUDA API call", source_names.CUDA_API, interval=True, names="cuda_api")

# ---- device operations -----------------------------------------------------------------------------------------------
_MEMORY = source_names.MEMORY_OPERATIONS
MEMORY_OPERATION = EventType(63000001, "Memory operation", _MEMORY, interval=True, values=tables.MEMORY_OPERATIONS)
MEMORY_BYTES = EventType(63000002, "Memory operation size", _MEMORY, unit="bytes")
MEMORY_SOURCE_KIND = EventType(63000210, "Copy source memory kind", _MEMORY, values=tables.MEMORY_KINDS)
MEMORY_DESTINATION_KIND = EventType(63000211, "Copy destination memory kind", _MEMORY, values=tables.MEMORY_KINDS)
MIGRATION_CAUSE = EventType(63000212, "Migration cause", _MEMORY, values=tables.MIGRATION_CAUSES)

KERNEL = EventType(63000006, "CUDA kernel", source_names.KERNELS, interval=True, names="kernels")
NCCL_KERNEL = EventType(63000007, "NCCL kernel", source_names.KERNELS, interval=True, names="nccl_kernels")
KERNEL_CLASS = EventType(63000200, "Kernel class", source_names.KERNELS, interval=True, values=tables.KERNEL_CLASSES)
GRID = tuple(EventType(9101 + i, f"Grid {axis}", source_names.KERNELS, unit="blocks") for i, axis in enumerate("XYZ"))
BLOCK = tuple(
    EventType(9104 + i, f"Block {axis}", source_names.KERNELS, unit="threads") for i, axis in enumerate("XYZ")
)
STATIC_SHARED_MEMORY = EventType(9107, "Static shared memory", source_names.KERNELS, unit="bytes per block")
DYNAMIC_SHARED_MEMORY = EventType(9108, "Dynamic shared memory", source_names.KERNELS, unit="bytes per block")
LOCAL_MEMORY = EventType(9109, "Local memory", source_names.KERNELS, unit="bytes per thread")
REGISTERS = EventType(9110, "Registers", source_names.KERNELS, unit="per thread")
CORRELATION = EventType(9200, "Correlation id", source_names.KERNELS)

# ---- a GPU as a whole: all streams of all processes together ---------------------------------------------------------
GPU_ACTIVITY = EventType(63000400, "GPU activity", source_names.DEVICE_ACTIVITY, values=tables.GPU_ACTIVITIES)
KERNELS_RUNNING = EventType(63000401, "Kernels running", source_names.DEVICE_ACTIVITY)
KERNELS_IN_FLIGHT = EventType(63000402, "Kernels in flight", source_names.DEVICE_ACTIVITY)
GPU_IDLE_STRETCH = EventType(63000403, "GPU idle gap", source_names.DEVICE_ACTIVITY, unit="ns")
QUEUE_DELAY = EventType(63000404, "Kernel queue delay", source_names.DEVICE_ACTIVITY, unit="ns")

# ---- waits: derived over all ranks -----------------------------------------------------------------------------------
WAITING_PART, MOVING_PART = 1, 2
OPERATION_PART = EventType(63000410, "Communication phase", "waits", interval=True, values={1: "Wait", 2: "Transfer"})
"""Within an NCCL kernel or an MPI call."""
WAITED_FOR = EventType(63000411, "Straggler", "waits", interval=True)
"""The value is the number of the task; labels are the names of the tasks in the trace."""
LATE_LAUNCH, LATE_DEVICE, LATE_DEPENDENCY, LATE_CALL, LATE_UNKNOWN = range(1, 6)
LATE_REASONS = {
    LATE_LAUNCH: "host-bound late launch",
    LATE_DEVICE: "late predecessor on the stream",
    LATE_DEPENDENCY: "late dependency on another stream",
    LATE_CALL: "host-bound late call",
    LATE_UNKNOWN: "unknown",
}
WAIT_REASON = EventType(63000412, "Root cause of the arrival delay", "waits", interval=True, values=LATE_REASONS)
GPU_WAITS = {
    0: tables.NOTHING_RECORDED, 1: "Compute only", 2: "Overlapped transfer", 3: "Exposed transfer", 4: "Exposed wait",
    5: "Overlapped wait", 6: "Memory operation", 7: "Idle", 8: "Exposed unclassified communication",
    9: "Overlapped unclassified communication", 10: "Opaque CUDA graph",
}  # fmt: skip
GPU_ACTIVITY_WITH_WAITS = EventType(63000413, "GPU activity with waits", "waits", values=GPU_WAITS)
LATENESS = EventType(63000414, "Arrival delay", "waits", unit="ns")
"""On the straggler's kernel or call: how much later it started than the last of the others."""

# ---- the critical path: derived over all ranks -----------------------------------------------------------------------
(
    PATH_COMPUTE, PATH_MOVING, PATH_NOT_SPLIT, PATH_MEMORY, PATH_LAUNCH, PATH_GAP, PATH_CUDA_CALL, PATH_SYSTEM_CALL,
    PATH_HOST, PATH_MPI, PATH_OUTSIDE, PATH_UNKNOWN, PATH_GRAPH,
) = range(1, 14)  # fmt: skip
PATH_KINDS = {
    1: "Compute", 2: "Data transfer", 3: "Unclassified communication", 4: "Memory operation", 5: "Launch latency",
    6: "GPU gap", 7: "CUDA API call", 8: "OS call", 9: "CPU code", 10: "MPI call", 11: "Wait for an unselected rank",
    12: "Unknown", 13: "Opaque CUDA graph",
}  # fmt: skip
"""Labels in the order of the values above."""
CRITICAL_PATH = EventType(63000420, "Critical path", "critical_path", interval=True, values=PATH_KINDS)

# ---- steps: derived over all ranks -----------------------------------------------------------------------------------
STEP = EventType(63000430, "Step", "steps", interval=True)
"""On main threads and on GPUs as a whole. The value is the number of the step plus one, because 0 ends a step."""
HOST_STEP = EventType(63000431, "Step on the host", "steps", interval=True)
"""On main threads, if steps end with the GPUs: the host's range of the step."""
STEP_KIND = EventType(63000432, "Kind of step", "steps", interval=True)
"""Beside each step, if steps are of several kinds."""

# ---- read-backs: derived over all ranks ------------------------------------------------------------------------------
_WAITED_FOR = {1: "Synchronization", 4: tables.MEMORY_OPERATIONS[4], 5: tables.MEMORY_OPERATIONS[5]}
READBACK = EventType(63000450, "Wait for the GPU", "readbacks", interval=True, values=_WAITED_FOR)
"""On host threads, in calls that synchronise or copy; the value says which copy they wait for."""
IDLE_AFTER_READBACK = EventType(
    63000451, "Idle after a wait of the host", "readbacks", interval=True, values=_WAITED_FOR
)
"""On GPUs that ran dry during such a wait, until the thread launched the next operation."""


# ---- an overview: what GPUs do in bins of equal time -----------------------------------------------------------------
# Percent of the time of the bin, or the mean over it; a value is in force until the next one.
def _make_share(number: int, label: str) -> EventType:
    return EventType(number, label, "overview", unit="%", precision=2)


GPU_COMPUTES = _make_share(63000440, "GPU time in compute")
GPU_COMMUNICATES = _make_share(63000441, "GPU time in communication")
GPU_COMMUNICATES_EXPOSED = _make_share(63000442, "GPU time in exposed communication")
GPU_WAITS_EXPOSED = _make_share(63000443, "GPU time in exposed wait")
GPU_MOVES_MEMORY = _make_share(63000444, "GPU time in memory operations")
GPU_IDLES = _make_share(63000445, "GPU idle time")
MEAN_IN_FLIGHT = EventType(63000446, "Mean kernels in flight", "overview", precision=2)
GPU_RUNS_GRAPHS = _make_share(63000447, "GPU time in opaque CUDA graphs alone")

# ---- the capture, if nothing else is in the trace --------------------------------------------------------------------
CAPTURE = EventType(63000300, "nsys capture", "capture", interval=True, values={1: "Capturing"})

# ---- CUDA graphs -----------------------------------------------------------------------------------------------------
GRAPH_LAUNCH = EventType(63000008, "CUDA graph", source_names.CUDA_GRAPHS, interval=True, names="cuda_graphs")
GRAPH_ID = EventType(63000100, "CUDA graph id", source_names.CUDA_GRAPHS)
GRAPH_EXEC_ID = EventType(63000101, "CUDA executable graph id", source_names.CUDA_GRAPHS)
GRAPH_NODE_ID = EventType(63000102, "CUDA graph node id", source_names.CUDA_GRAPHS)
GRAPH_CREATION = EventType(63000103, "CUDA graph creation", source_names.CUDA_GRAPHS, names="cuda_graph_creations")
GRAPH_ORIGINAL_ID = EventType(63000104, "Original CUDA graph or node id", source_names.CUDA_GRAPHS)

# ---- CUDA events and synchronisation ---------------------------------------------------------------------------------
# CUPTI's numbers; its 0 (unknown) is 5 here.
SYNCHRONIZATIONS = {
    1: "Event synchronization", 2: "Stream waits for event", 3: "Stream synchronization",
    4: "Context synchronization", 5: "Unknown",
}  # fmt: skip
CUDA_SYNCHRONIZATION = EventType(
    63000220, "CUDA synchronization", source_names.CUDA_SYNC, interval=True, values=SYNCHRONIZATIONS
)
CUDA_STREAM_WAITED_FOR = EventType(63000221, "CUDA stream waited on", source_names.CUDA_SYNC)
CUDA_EVENT_RECORD = EventType(63000222, "CUDA event recorded", source_names.CUDA_SYNC, values={1: "Recorded"})
HOST_FUNCTION = EventType(
    63000223, "CUDA host function", source_names.HOST_FUNCTIONS, interval=True, names="host_functions"
)
HOST_FUNCTION_CALL = EventType(
    63000224, "CUDA host function call", source_names.HOST_FUNCTIONS, interval=True, names="host_functions"
)
CUDA_EVENT_ID = EventType(9301, "CUDA event id", source_names.CUDA_SYNC)
CUDA_DEVICE_ID = EventType(9302, "CUDA event or synchronization device", source_names.CUDA_SYNC)
CUDA_STREAM_ID = EventType(9303, "CUDA event or synchronization stream", source_names.CUDA_SYNC)
CUDA_CONTEXT_ID = EventType(9304, "CUDA event or synchronization context", source_names.CUDA_SYNC)

# ---- memory of CUDA --------------------------------------------------------------------------------------------------
ALLOCATED_BYTES = EventType(66500001, "CUDA memory allocated", source_names.CUDA_MEMORY, unit="bytes")
FREED_BYTES = EventType(66500002, "CUDA memory freed", source_names.CUDA_MEMORY, unit="bytes")
ALLOCATION_KIND = EventType(66500003, "CUDA memory kind", source_names.CUDA_MEMORY, values=tables.MEMORY_KINDS)
ALLOCATION_LIFETIME = EventType(66500004, "CUDA memory lifetime", source_names.CUDA_MEMORY, unit="ns")
ALLOCATION_GPU = EventType(66500005, "CUDA memory GPU", source_names.CUDA_MEMORY)
MEMORY_LEVELS = tuple(
    EventType(66500010 + i, f"CUDA memory in use: {kind.lower()}", source_names.CUDA_MEMORY, unit="bytes")
    for i, kind in enumerate(tables.MEMORY_KINDS.values())
)
"""The level of each of CUPTI's memory kinds."""

# ---- unified memory, and the contexts of a GPU -----------------------------------------------------------------------
GPU_PAGE_FAULT = EventType(63000240, "GPU page faults", source_names.UNIFIED_MEMORY, values=tables.ACCESSES)
GPU_PAGE_FAULTS = EventType(63000241, "GPU page fault count", source_names.UNIFIED_MEMORY)
GPU_PAGE_FAULT_TIME = EventType(63000242, "GPU page fault duration", source_names.UNIFIED_MEMORY, unit="ns")
GPU_PAGE_FAULT_ADDRESS = EventType(63000243, "GPU page fault address", source_names.UNIFIED_MEMORY)
CPU_PAGE_FAULT = EventType(63000244, "CPU page fault function", source_names.UNIFIED_MEMORY, names="cpu_page_faults")
CPU_PAGE_FAULT_ADDRESS = EventType(63000245, "CPU page fault address", source_names.UNIFIED_MEMORY)
GPU_CONTEXT = EventType(63000250, "GPU context", source_names.GPU_CONTEXTS, interval=True, names="gpu_contexts")

# ---- libraries of CUDA -----------------------------------------------------------------------------------------------
CUBLAS_CALL = EventType(63000230, "cuBLAS call", source_names.CUDA_LIBRARIES, interval=True, names="cublas")
CUDNN_CALL = EventType(63000231, "cuDNN call", source_names.CUDA_LIBRARIES, interval=True, names="cudnn")

VIDEO_ENCODER_CALL = EventType(63000260, "Video encoder call", source_names.VIDEO, interval=True, names="video_encoder")
VIDEO_DECODER_CALL = EventType(63000261, "Video decoder call", source_names.VIDEO, interval=True, names="video_decoder")
VIDEO_JPEG_CALL = EventType(63000262, "JPEG call", source_names.VIDEO, interval=True, names="video_jpeg")
VIDEO_ENGINE = EventType(63000263, "Video engine", source_names.VIDEO)
VIDEO_LANES = 8
_VIDEO_WORK = partial(EventType, source=source_names.VIDEO, interval=True, values=tables.VIDEO_CODECS)
VIDEO_WORK = {
    (i, lane): _VIDEO_WORK(63000510 + 10 * i + lane, f"{name}, lane {lane + 1}")
    for i, name in tables.VIDEO_ENGINES.items()
    for lane in range(VIDEO_LANES)
}
"""Types by nsys's number of the kind of engine, and by lane."""


# ---- OpenACC: nsys2prv's numbers, of CUPTI's activities other, data and launch; values are CUPTI's kinds of event ----
def _make_openacc(first: int, what: str = "", **properties: Any) -> tuple[EventType, ...]:
    labels = [f"OpenACC {kind}{what}" for kind in ("other", "data", "launch")]
    return tuple(
        EventType(number, label, source_names.OPENACC, interval=True, **properties)
        for number, label in enumerate(labels, first)
    )


OPENACC = _make_openacc(66000000, values=tables.OPENACC_KINDS)
OPENACC_SOURCE = _make_openacc(66100000, ": source line", names="openacc_lines")
OPENACC_FUNCTION = _make_openacc(66200000, ": function", names="openacc_functions")
OPENACC_BYTES = EventType(66300001, "OpenACC data size", source_names.OPENACC, unit="bytes")
OPENACC_VARIABLE = EventType(66300002, "OpenACC variable", source_names.OPENACC, names="openacc_variables")
OPENACC_KERNEL = EventType(66300003, "OpenACC kernel launched", source_names.OPENACC, names="openacc_kernels")
OPENACC_SIZES = {
    "numGangs": EventType(66300004, "OpenACC gangs", source_names.OPENACC),
    "numWorkers": EventType(66300005, "OpenACC workers", source_names.OPENACC),
    "vectorLength": EventType(66300006, "OpenACC vector length", source_names.OPENACC),
}
"""Types by column of the launches."""

# ---- OpenMP: Extrae's numbers and values, continued where OMPT reports more ------------------------------------------
_LOCKING = {3: "Waiting to enter", 5: "Leaving", 6: "Inside"}


def _make_openmp(number: int, label: str, values: dict[int, str]) -> EventType:
    return EventType(number, f"OpenMP {label}", source_names.OPENMP, interval=True, values=values)


OMP_PARALLEL = _make_openmp(60000001, "parallel", {3: "Parallel region"})
OMP_WORKSHARING = _make_openmp(60000002, "worksharing", tables.WORKSHARING)
OMP_BARRIER = _make_openmp(60000005, "barrier", tables.BARRIERS)
OMP_CRITICAL = _make_openmp(60000006, "critical section", _LOCKING)
OMP_ATOMIC = _make_openmp(60000008, "atomic", _LOCKING)
OMP_LOCK = _make_openmp(60000009, "lock", _LOCKING)
OMP_FUNCTION = _make_openmp(60000018, "parallel function", {1: "Implicit task", 2: "Initial task"})
OMP_TASKWAIT = _make_openmp(60000022, "taskwait", {1: "Taskwait"})
OMP_TASK = _make_openmp(60000023, "task", {1: "Explicit task", 2: "Target task", 3: "Unknown task"})
OMP_TASK_CREATION = EventType(60000024, "OpenMP task creation", source_names.OPENMP, values={1: "Task created"})
OMP_TASKGROUP = _make_openmp(60000027, "taskgroup", {1: "Taskgroup"})
OMP_TASK_ID = EventType(60000028, "OpenMP task id", source_names.OPENMP)
OMP_TASKLOOP = _make_openmp(60000029, "taskloop", {1: "Taskloop"})
OMP_ORDERED = _make_openmp(60000033, "ordered section", _LOCKING)
OMP_THREAD = _make_openmp(60000040, "thread", {1: "OpenMP thread"})
OMP_REDUCTION = _make_openmp(60000041, "reduction", {1: "Reduction"})
OMP_WAIT = _make_openmp(60000042, "wait in synchronization", tables.WAITS)
OMP_OTHER_SYNCHRONIZATION = _make_openmp(60000043, "other synchronization", {1: tables.UNKNOWN_SYNCHRONIZATION})
OMP_POINT = EventType(60000044, "OpenMP event", source_names.OPENMP, values=tables.OPENMP_POINTS)

# ---- calls of the operating system: Extrae's values for pthreads up to 13 --------------------------------------------
OS_RUNTIME = EventType(66400000, "OS runtime call", source_names.OS_RUNTIME, interval=True, names="os_runtime")
PTHREAD = EventType(61000000, "pthread call", source_names.OS_RUNTIME, interval=True, values=tables.PTHREAD_CALLS)

SYSTEM_CALL = EventType(66410000, "System call", source_names.SYSTEM_CALLS, interval=True, names="system_calls")

# ---- UCX -------------------------------------------------------------------------------------------------------------
UCX_LANES = 16
UCX_CALL = EventType(66420000, "UCX call", source_names.UCX, interval=True, names="ucx")
UCX_BYTES = EventType(66420001, "UCX message size", source_names.UCX, unit="bytes")
UCX_TAG = EventType(66420002, "UCX tag", source_names.UCX)
UCX_PEER = EventType(66420003, "UCX peer", source_names.UCX, names="ucx_workers")
UCX_TRANSFER_BYTES = EventType(66420004, "UCX transfer size", source_names.UCX, unit="bytes")
UCX_TRANSFERS = tuple(
    EventType(66420010 + lane, f"UCX transfer, lane {lane + 1}", source_names.UCX, interval=True, names="ucx")
    for lane in range(UCX_LANES)
)

# ---- threads as the kernel and the profiler see them -----------------------------------------------------------------
ON_CPU = EventType(66700000, "On CPU", source_names.SCHEDULING, interval=True, names="cores")
PROFILER_OVERHEAD = EventType(
    66800000, "Profiler overhead", source_names.PROFILER_OVERHEAD, interval=True, names="profiler_overhead"
)

# ---- functions on the stack of a thread: Extrae's numbers and labels -------------------------------------------------
STACK_LEVELS = 100
"""Number of levels for which Extrae's numbers have room."""


def _make_levels(first: int, label: str, source: str, names: str) -> tuple[EventType, ...]:
    labels = [label, *(f"{label} (depth {depth})" for depth in range(1, STACK_LEVELS))]
    return tuple(EventType(number, text, source, names=names) for number, text in enumerate(labels, first))


SAMPLED_FUNCTIONS = _make_levels(30000000, "Sampled functions", source_names.CPU_SAMPLES, "functions")
"""Types by depth: 0 is the function that ran, 1 its caller."""
SAMPLED_MODULE = EventType(30000200, "Sampled module", source_names.CPU_SAMPLES, names="modules")
SAMPLED_PROGRAM = EventType(30000201, "Sampled function of the program", source_names.CPU_SAMPLES, names="functions")
"""The innermost function of a sample whose module is no shared library."""
SAMPLED_PYTHON = _make_levels(30000300, "Sampled Python functions", source_names.NVTX, "python_functions")
"""Types by depth, likewise. Extrae has no such types."""
PROGRAM_PYTHON = EventType(
    30000400, "Sampled Python function of the program", source_names.NVTX, names="python_functions"
)
"""The innermost function of a sample, or of the back trace of a call, whose file is not one of a library."""
CALLED_PYTHON = EventType(30000401, "Function of a library that it called", source_names.NVTX, names="python_libraries")
_CALLS = ", ".join((source_names.CUDA_API, source_names.OS_RUNTIME, source_names.SYSTEM_CALLS))
CALLERS = tuple(
    EventType(70000000 + level, f"Caller at level {level}", _CALLS, names="functions")
    for level in range(1, STACK_LEVELS + 1)
)
"""Callers of a call by level, from 1: the calling function, its caller, and so on."""

# ---- the node: messages of nsys, and congestion that a switch reported -----------------------------------------------
DIAGNOSTIC = EventType(66900000, "nsys warning or error", source_names.DIAGNOSTICS, names="diagnostics")
IB_CONGESTION = EventType(66910000, "InfiniBand congestion", source_names.NETWORK_METRICS, names="ib_congestion")
IB_CONGESTION_FROM = EventType(66910001, "Congested packet source LID", source_names.NETWORK_METRICS)
IB_CONGESTION_TO = EventType(66910002, "Congested packet destination LID", source_names.NETWORK_METRICS)
IB_CONGESTION_IN = EventType(66910003, "Congested packet ingress port", source_names.NETWORK_METRICS)
IB_CONGESTION_OUT = EventType(66910004, "Congested packet egress port", source_names.NETWORK_METRICS)

# ---- MPI: Extrae's numbers; numbers from 50100011 are new -----------------------------------------------------------
_MPI_LABELS = ("MPI Point-to-point", "MPI Collective Comm", "MPI Other", "MPI One-sided", "MPI I/O")
MPI_CALLS = {
    call_class: EventType(
        50000001 + i,
        label,
        source_names.MPI,
        interval=True,
        values=tables.list_labels(call_class),
        names=f"mpi {call_class} calls",
    )
    for i, (call_class, label) in enumerate(zip(tables.CLASSES, _MPI_LABELS, strict=True))
}
"""The type of each class of calls."""
MPI_SENT_BYTES = EventType(50100001, "MPI collective sent", source_names.MPI, unit="bytes")
MPI_RECEIVED_BYTES = EventType(50100002, "MPI collective received", source_names.MPI, unit="bytes")
# Ranks are ranks of MPI_COMM_WORLD plus one, so that 0 stays free: in Paraver 0 reads as "nothing".
MPI_ROOT = EventType(50100003, "MPI collective root", source_names.MPI, names="mpi ranks")
MPI_COLLECTIVE_COMMUNICATOR = EventType(
    50100004, "MPI collective communicator", source_names.MPI, names="mpi communicators"
)
MPI_PARTNER = EventType(50100011, "MPI partner", source_names.MPI, names="mpi ranks")
MPI_TAG = EventType(50100012, "MPI tag", source_names.MPI)
MPI_BYTES = EventType(50100013, "MPI message size", source_names.MPI, unit="bytes")
MPI_COMMUNICATOR = EventType(50100014, "MPI communicator", source_names.MPI, names="mpi communicators")
# MPI_Sendrecv is one call: partner, tag and size belong to the sent message, these types to the received message.
MPI_SENDRECV_SOURCE = EventType(50100015, "MPI Sendrecv source", source_names.MPI, names="mpi ranks")
MPI_SENDRECV_TAG = EventType(50100016, "MPI Sendrecv received tag", source_names.MPI)
MPI_SENDRECV_BYTES = EventType(50100017, "MPI Sendrecv received size", source_names.MPI, unit="bytes")

# ---- NCCL's payloads: the first numbers of the block of NVTX's domain NCCL, whose 9500 are the calls themselves ------
# On the row of a thread they describe one call, from its start. On the row of a stream they describe all calls that the
# kernel carries out, from its start: bytes are summed, the sequence number is the lowest, and each communicator,
# operation, root or peer occurs once. Bytes end with the call or kernel.
NCCL_COMMUNICATOR = EventType(9501, "NCCL communicator", source_names.NCCL, names="nccl_communicators")
NCCL_BYTES = EventType(9502, "NCCL collective size", source_names.NCCL, unit="bytes")
NCCL_OPERATION = EventType(9503, "NCCL reduction operation", source_names.NCCL, names="nccl_operations")
NCCL_ROOT = EventType(9504, "NCCL root", source_names.NCCL, names="nccl_ranks")
NCCL_SEND_PEER = EventType(9505, "NCCL send peer", source_names.NCCL, names="nccl_ranks")
NCCL_SEND_BYTES = EventType(9506, "NCCL send size", source_names.NCCL, unit="bytes")
NCCL_RECEIVE_PEER = EventType(9507, "NCCL receive peer", source_names.NCCL, names="nccl_ranks")
NCCL_RECEIVE_BYTES = EventType(9508, "NCCL receive size", source_names.NCCL, unit="bytes")
# The number of a collective among the collectives of its process on its communicator, from 1; the number of a send (or
# receive) among the sends to (or receives from) the same peer. So matching calls have the same number on every rank.
NCCL_SEQUENCE = EventType(9509, "NCCL sequence number", source_names.NCCL)
NCCL_CALLS = EventType(9510, "NCCL calls in the kernel", source_names.NCCL)
# Ranges of the advanced NCCL trace of nsys, on rows of their own. The ranges of a row do not overlap.
NCCL_CHANNEL = EventType(9511, "NCCL operation on the GPU", source_names.NCCL, interval=True, names="nccl_channels")
NCCL_PROXY = EventType(9512, "NCCL proxy", source_names.NCCL, interval=True, names="nccl_proxies")
# ncclRedOp_t plus 1; numbers of other names follow.
NCCL_OPERATIONS = {"Sum": 1, "Product": 2, "Max": 3, "Min": 4, "Avg": 5}

# ---- communications (tags of record kind 3) --------------------------------------------------------------------------
# MPI messages have their own tags, as in Extrae's traces: an MPI tag 55001 or 55002 cannot be distinguished from these.
TAG_LAUNCH = 55001
TAG_COPY = 55002
TAG_NCCL = 55004
TAG_RELEASE = 55005
TAG_PATH = 55006

# ---- states: Extrae's numbers and colours ----------------------------------------------------------------------------
STATES: dict[int, tuple[str, tuple[int, int, int]]] = {
    (IDLE := 0): ("Idle", (117, 195, 255)),
    (RUNNING := 1): ("Running", (0, 0, 255)),
    (WAITING_MESSAGE := 3): ("Waiting a message", (255, 0, 0)),
    (BLOCKING_SEND := 4): ("Blocking Send", (255, 0, 174)),
    (SYNCHRONIZATION := 5): ("Synchronization", (179, 0, 0)),
    (TEST_PROBE := 6): ("Test/Probe", (0, 255, 0)),
    (WAITING := 8): ("Wait/WaitAll", (235, 0, 0)),
    (BLOCKED := 9): ("Blocked", (0, 162, 0)),
    (IMMEDIATE_SEND := 10): ("Immediate Send", (255, 0, 255)),
    (IMMEDIATE_RECEIVE := 11): ("Immediate Receive", (100, 100, 177)),
    (INPUT_OUTPUT := 12): ("I/O", (172, 174, 41)),
    (GROUP_COMMUNICATION := 13): ("Group Communication", (255, 144, 26)),
    (OTHERS := 15): ("Others", (192, 224, 0)),
    (SEND_RECEIVE := 16): ("Send Receive", (66, 66, 66)),
    (MEMORY_TRANSFER := 17): ("Memory transfer", (255, 0, 96)),
    (PROFILING := 18): ("Profiling", (169, 169, 169)),
    (ONE_SIDED := 25): ("One-sided op", (116, 116, 116)),
}
