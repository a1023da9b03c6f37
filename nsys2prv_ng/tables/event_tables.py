"""Declares the tables of events, whose rows are those of one source or a few."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.activity import get_values, list_runs
from nsys2prv_ng.arrays.types import IntArray, pick
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.value_tables import MEMORY_KINDS
from nsys2prv_ng.reading.opened_events import ABSENT
from nsys2prv_ng.records.runs import load_records
from nsys2prv_ng.sources.cuda.cuda_memory import LEVEL
from nsys2prv_ng.sources.mpi.mpi import COMMUNICATOR_NAMES, RANK_NAMES
from nsys2prv_ng.tables.columns import (
    BYTES,
    GPU,
    NODE,
    NS,
    ON_STREAM,
    ON_THREAD,
    PROCESS,
    RANK,
    THREAD,
    TIME,
    Column,
    Part,
    Values,
    lack_below,
    make_names,
)
from nsys2prv_ng.tables.events import (
    CORRELATION,
    LAUNCH_START,
    LAUNCH_THREAD,
    RANGE,
    RANGE_PATH,
    STEP,
    STEP_OF_TIME,
    EventPart,
    EventsOfReport,
    find_names,
    find_type_names,
    load_samples,
    make_table,
    take_name,
    take_number,
)


def _number(name: str, meaning: str, *event_types: EventType, unit: str = "", least: int | None = None) -> Column:
    return Column(name, meaning, unit, may_lack=True, find=take_number(*event_types, least=least))


def _name(meaning: str, *event_types: EventType, name: str = "name") -> Column:
    return Column(name, meaning, kind="name", find=take_name(*event_types))


_OF_HOST = (STEP, RANGE, RANGE_PATH)
_OF_LAUNCH = (STEP, RANGE, RANGE_PATH, LAUNCH_START, LAUNCH_THREAD, CORRELATION)
_GRAPH_NODE = _number("graph_node_id", "Id of the node of a CUDA graph", types.GRAPH_NODE_ID)
_CALLER = _name("Function that made the call, if nsys took a backtrace", types.CALLERS[0], name="caller")

KERNELS = make_table(
    "kernels",
    "A kernel, NCCL's included",
    (source_names.KERNELS,),
    (
        *ON_STREAM,
        _name("Short name of the kernel", types.KERNEL, types.NCCL_KERNEL),
        _name("What the kernel is for, by its name", types.KERNEL_CLASS, name="class"),
        *_OF_LAUNCH,
        _number(
            "queue_ns",
            "From the end of the call that launched it to its start, if it did not start before",
            types.QUEUE_DELAY,
            unit=NS,
        ),
        *(
            _number(f"grid_{axis}", f"Blocks of the grid in {axis}", each)
            for axis, each in zip("xyz", types.GRID, strict=True)
        ),
        *(
            _number(f"block_{axis}", f"Threads of a block in {axis}", each)
            for axis, each in zip("xyz", types.BLOCK, strict=True)
        ),
        _number("registers", "Registers of a thread", types.REGISTERS),
        _number("static_shared_bytes", "Static shared memory of a block", types.STATIC_SHARED_MEMORY, unit=BYTES),
        _number("dynamic_shared_bytes", "Dynamic shared memory of a block", types.DYNAMIC_SHARED_MEMORY, unit=BYTES),
        _number("local_bytes", "Local memory of a thread", types.LOCAL_MEMORY, unit=BYTES),
        _GRAPH_NODE,
    ),
    launched=True,
)

COPIES = make_table(
    "copies",
    "A copy, set, migration or decompression of memory on a GPU",
    (source_names.MEMORY_OPERATIONS,),
    (
        *ON_STREAM,
        _name("Kind of operation", types.MEMORY_OPERATION),
        _name("What it is for; only of communication", types.KERNEL_CLASS, name="class"),
        *_OF_LAUNCH,
        Column("bytes", "Size", BYTES, find=lambda part: Values(part.get_values(types.MEMORY_BYTES))),
        _name("Kind of memory that it reads", types.MEMORY_SOURCE_KIND, name="source_kind"),
        _name("Kind of memory that it writes", types.MEMORY_DESTINATION_KIND, name="destination_kind"),
        _name("Why unified memory migrated", types.MIGRATION_CAUSE, name="migration_cause"),
        _GRAPH_NODE,
    ),
    launched=True,
)


def _find_correlations(part: EventPart) -> Values:
    return lack_below(part.source.correlation[part.line], ABSENT + 1)


CUDA_CALLS = make_table(
    "cuda_calls",
    "A call of the CUDA runtime or driver",
    (source_names.CUDA_API,),
    (
        *ON_THREAD,
        _name("Function", types.CUDA_API),
        *_OF_HOST,
        Column(
            "correlation_id",
            "CUPTI's id of the call, if it launched an operation that the report has",
            may_lack=True,
            find=_find_correlations,
        ),
        _CALLER,
    ),
)

_SYNCHRONIZATIONS = types.CUDA_SYNCHRONIZATION, types.CUDA_EVENT_RECORD
_SYNC_LABELS = [(each, each.label) for each in _SYNCHRONIZATIONS]
SYNCHRONIZATIONS = make_table(
    "synchronizations",
    "A synchronization of the host with a GPU, or the record of a CUDA event, at the call that made it",
    (source_names.CUDA_SYNC,),
    (
        *ON_THREAD,
        _name("Kind of synchronization; Recorded for an event", *_SYNCHRONIZATIONS),
        Column("class", "Synchronization or event", kind="name", find=lambda part: find_type_names(part, _SYNC_LABELS)),
        *_OF_HOST,
        _number("stream", "CUDA stream", types.CUDA_STREAM_WAITED_FOR, types.CUDA_STREAM_ID),
        _number("context", "CUDA context", types.CUDA_CONTEXT_ID),
        _number("device", "CUDA's ordinal of the GPU in the process", types.CUDA_DEVICE_ID),
        _number("event_id", "Id of the CUDA event", types.CUDA_EVENT_ID),
    ),
)

# ---- NVTX ------------------------------------------------------------------------------------------------------------

_PUSH_POP, _START_END, _MARK = "push/pop", "start/end", "mark"


def _list_nvtx(part: EventPart, source: str = source_names.NVTX) -> dict[EventType, str]:
    """Return the types of ranges and marks that a source writes, with the class of each."""
    found = {}
    for each in part.events.list_types(families.NVTX):
        if each.source == source and source == source_names.NVTX_ON_GPU:
            found[each] = _PUSH_POP
        elif each.source == source and (each.interval or each == families.make_nvtx_mark(each.member)):
            found[each] = _PUSH_POP if families.is_push_pop(each) else _START_END if each.interval else _MARK
    return {each: kind for each, kind in found.items() if each.names == f"nvtx {each.member}"}


def _take_of_domains(make: Callable[[str], EventType]) -> Callable[[EventPart], IntArray]:
    """Return a function that reads the values of a type that each domain has; ABSENT without one."""

    def find(part: EventPart) -> IntArray:
        domains = sorted({each.member for each in part.events.list_types(families.NVTX)})
        return part.get_values(*map(make, domains)) if domains else np.full(part.line.size, ABSENT)

    return find


def _number_of_domains(name: str, meaning: str, make: Callable[[str], EventType], unit: str = "") -> Column:
    take = _take_of_domains(make)
    return Column(name, meaning, unit, may_lack=True, find=lambda part: lack_below(take(part), ABSENT + 1))


def _name_of_domains(name: str, meaning: str, make: Callable[[str], EventType]) -> Column:
    def find(part: EventPart) -> Values:
        domains = sorted({each.member for each in part.events.list_types(families.NVTX)})
        return find_names(part, map(make, domains))

    return Column(name, meaning, kind="name", find=find)


def _find_real_payloads(part: EventPart) -> Values:
    value = _take_of_domains(families.make_nvtx_real_payload)(part)
    scale = 10.0 ** families.make_nvtx_real_payload("").precision
    return Values(np.where(value == ABSENT, np.nan, value / scale), np.asarray(value == ABSENT, np.bool_))


def _find_nvtx(*, source: str = source_names.NVTX, domain: bool = False) -> Callable[[EventPart], Values]:
    """Return a function that reads the names of ranges, or of their domains."""

    def find(part: EventPart) -> Values:
        listed = _list_nvtx(part, source)
        if domain:
            return find_type_names(part, [(each, each.member or "default") for each in listed])
        return find_names(part, listed)

    return find


_TEXT = "Text of the range without a number at its end"
_DOMAIN = "Domain of NVTX"
_NUMBER = _number_of_domains("number", "Number that was cut from the text", families.make_nvtx_number)


NVTX = make_table(
    "nvtx",
    "An NVTX range or mark",
    (source_names.NVTX,),
    (
        *ON_THREAD,
        Column("name", f"{_TEXT}; of the mark", kind="name", find=_find_nvtx()),
        Column("domain", _DOMAIN, kind="name", find=_find_nvtx(domain=True)),
        Column(
            "class",
            f"{_PUSH_POP}, {_START_END} or {_MARK}",
            kind="name",
            find=lambda part: find_type_names(part, [*_list_nvtx(part).items()]),
        ),
        *_OF_HOST,
        _NUMBER,
        _name_of_domains("category", "Category of NVTX", families.make_nvtx_category),
        _number_of_domains("payload", "Integer payload", families.make_nvtx_payload),
        Column("payload_real", "Floating-point payload, with six decimals", kind="real", find=_find_real_payloads),
        _name_of_domains("payload_json", "Extended payload as JSON; not NCCL's", families.make_nvtx_json_payload),
        _number_of_domains(
            "flops", "Operations of an operator of PyTorch, by its shapes", families.make_nvtx_flops, "FLOP"
        ),
        _number_of_domains(
            "end_thread", "Thread id of the thread that ended it, if another", families.make_nvtx_end_thread
        ),
    ),
)

NVTX_ON_GPU = make_table(
    "nvtx_on_gpu",
    "An NVTX range on a stream, from the start of the first operation that it launched there to the end of the last",
    (source_names.NVTX_ON_GPU,),
    (
        *ON_STREAM,
        Column("name", _TEXT, kind="name", find=_find_nvtx(source=source_names.NVTX_ON_GPU)),
        Column("domain", _DOMAIN, kind="name", find=_find_nvtx(source=source_names.NVTX_ON_GPU, domain=True)),
        _NUMBER,
    ),
)

# ---- calls of MPI and of the operating system ------------------------------------------------------------------------


def _find_mpi_ranks(event_type: EventType) -> Callable[[EventPart], Values]:
    """Return a function that reads ranks of the job; ranks of communicators are known once all reports are."""

    def find(part: EventPart) -> Values:
        assigned = _find_assigned(part, RANK_NAMES)
        names = part.events.get_names(event_type)
        ranks = np.full(max(names, default=0) + 1, -1, np.int64)
        for key, name in names.items():
            number, label = assigned.get(name, (0, ""))
            if label == f"rank {number - 1}":
                ranks[key] = number - 1
        value = part.get_values(event_type)
        return lack_below(pick(ranks, np.where(value == ABSENT, -1, value), -1))

    return find


def _find_assigned(part: EventPart, space: str) -> dict[str, tuple[int, str]]:
    joined = part.tables.job.joined
    return {
        name: (value.number, value.label) for each in joined for name, value in each.assigned.get(space, {}).items()
    }


def _find_communicators(part: EventPart) -> Values:
    labels = {name: label for name, (_, label) in _find_assigned(part, COMMUNICATOR_NAMES).items()}
    event_types = types.MPI_COMMUNICATOR, types.MPI_COLLECTIVE_COMMUNICATOR
    return find_names(part, event_types, lambda _, name: labels.get(name, name))


def _rank(name: str, meaning: str, event_type: EventType) -> Column:
    return Column(name, meaning, may_lack=True, find=_find_mpi_ranks(event_type))


_MPI_LABELS = [(each, each.label) for each in types.MPI_CALLS.values()]
MPI_CALLS = make_table(
    "mpi_calls",
    "A call of MPI",
    (source_names.MPI,),
    (
        *ON_THREAD,
        _name("Function", *types.MPI_CALLS.values()),
        Column("class", "Class of calls", kind="name", find=lambda part: find_type_names(part, _MPI_LABELS)),
        *_OF_HOST,
        _number("bytes", "Bytes of the message; bytes sent", types.MPI_BYTES, types.MPI_SENT_BYTES, unit=BYTES),
        _number("received_bytes", "Bytes received", types.MPI_SENDRECV_BYTES, types.MPI_RECEIVED_BYTES, unit=BYTES),
        _rank("peer", "Rank of the job on the other side of the message", types.MPI_PARTNER),
        _rank("source", "Rank of the job from which a Sendrecv receives", types.MPI_SENDRECV_SOURCE),
        _number("tag", "Tag", types.MPI_TAG),
        _rank("root", "Rank of the job that is the root", types.MPI_ROOT),
        Column("communicator", "Communicator", kind="name", find=_find_communicators),
    ),
)

_OS_TYPES = types.OS_RUNTIME, types.PTHREAD, types.SYSTEM_CALL
_OS_LABELS = [(each, each.label) for each in _OS_TYPES]
OS_CALLS = make_table(
    "os_calls",
    "A call of the OS runtime library, or a system call",
    (source_names.OS_RUNTIME, source_names.SYSTEM_CALLS),
    (
        *ON_THREAD,
        _name("Function; of pthreads, without its variant", *_OS_TYPES),
        Column("class", "Kind of call", kind="name", find=lambda part: find_type_names(part, _OS_LABELS)),
        *_OF_HOST,
        _CALLER,
    ),
)

# ---- memory, metrics and samples -------------------------------------------------------------------------------------


def _find_in_use(report: EventsOfReport) -> Part:
    """Return the memory in use when a report, or the chosen time, begins: a row for each GPU or process, and kind."""
    job, low = report.job, report.job.scope.shown[0][0]
    begins = [max(each.clock.at(0), low) for each in job.reports]
    begin = begins[report.index]
    earlier = [rows for rows, other in zip(job.tree.rows[: report.index], begins, strict=False) if other == begin]
    own = np.setdiff1d(report.rows, np.concatenate([[-1], *earlier]))
    found = [np.zeros((3, 0), np.int64)]
    for records in (load_records(run, job.store) for run in list_runs(job, LEVEL)):
        for kind, event_type in enumerate(types.MEMORY_LEVELS):
            row, time, level = get_values(records, event_type.number)
            before = np.where(np.diff(row, prepend=-1) == 0, np.append(0, level[:-1]), 0)
            at = np.flatnonzero((time == begin) & np.isin(row, own))
            found.append(np.array([row[at], level[at] - before[at], np.full(at.size, kind)]))
    row, size, kind = np.concatenate(found, axis=1)
    nothing = np.full(row.size, -1, np.int64)
    given = {
        "name": make_names(nothing + 1, ["In use"]),
        "class": make_names(kind, list(MEMORY_KINDS.values())),
        "range": make_names(nothing, []),
        "range_path": make_names(nothing, []),
        "bytes": Values(size),
        "gpu": lack_below(report.tables.facts.gpu[row]),
        **{name: lack_below(nothing) for name in ("step", "lifetime_ns")},
    }
    return Part(report.tables, row, np.full(row.size, begin), np.full(row.size, begin), given)


_MEMORY_TYPES = types.ALLOCATED_BYTES, types.FREED_BYTES
_MEMORY_LABELS = [(types.ALLOCATED_BYTES, "Allocation"), (types.FREED_BYTES, "Free")]
MEMORY = make_table(
    "memory",
    "An allocation or a free of CUDA memory, or what was in use when the capture, or the chosen time, began",
    (source_names.CUDA_MEMORY,),
    (
        *(RANK, NODE, PROCESS, THREAD, TIME),
        Column(
            "name", "Allocation, Free or In use", kind="name", find=lambda part: find_type_names(part, _MEMORY_LABELS)
        ),
        _name("Kind of memory", types.ALLOCATION_KIND, name="class"),
        *_OF_HOST,
        Column("bytes", "Size", BYTES, find=lambda part: Values(part.get_values(*_MEMORY_TYPES))),
        _number("lifetime_ns", "From the allocation to its free", types.ALLOCATION_LIFETIME, unit=NS),
        _number("gpu", "Number of the GPU on its node, as nsys counts", types.ALLOCATION_GPU),
    ),
    make_more=_find_in_use,
)


GPU_METRICS = make_table(
    "gpu_metrics",
    "A value of a metric of a GPU",
    (source_names.GPU_METRICS,),
    (
        *(RANK, NODE, GPU, TIME),
        STEP_OF_TIME,
        Column("name", "Name of the metric", kind="name"),
        Column("value", "Value, in the unit of the next column"),
        Column("unit", "Unit of the value; Hz where nsys has MHz", kind="name"),
    ),
    make_part=load_samples,
    group="",
)

SAMPLES = make_table(
    "samples",
    "A CPU sample of a thread that also made calls",
    (source_names.CPU_SAMPLES,),
    (
        *(RANK, NODE, PROCESS, THREAD, TIME),
        _name("Function", types.SAMPLED_FUNCTIONS[0]),
        _name("Its module", types.SAMPLED_MODULE, name="module"),
        _name("Innermost function of the program on the stack", types.SAMPLED_PROGRAM, name="program_function"),
        *_OF_HOST,
    ),
)
