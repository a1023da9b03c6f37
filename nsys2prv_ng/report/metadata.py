"""Reads the metadata of a report: versions, time base, host, processes, threads, ranks and GPUs.

Identifiers: globalTid is <hardware:8><VM:8><process:24><thread:24> (globalPid the same with thread 0). The key of a
process is globalTid >> 24, which is unique within a report; its pid is the low 24 bits of the key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import escape_unprintable
from nsys2prv_ng.report import export_settings
from nsys2prv_ng.report.database import NULL, Among, Database
from nsys2prv_ng.report.gpus import Gpu, find_gpus
from nsys2prv_ng.report.launchers import ALLOWED_ENVIRONMENT, RANK_VARIABLES
from nsys2prv_ng.report.nvtx_payload import PayloadLayout, read_payload_tables
from nsys2prv_ng.value_class import ValueClass

Keys = TypeVar("Keys", int, IntArray)

PID_MASK = 0xFFFFFF
_NVTX_THREAD_NAME = 39
_INIT_RANK = re.compile(r"ncclCommInitRank.*", re.DOTALL)
_RANKS, _RANK = "No. of ranks", "Rank"
"""Fields of the payload of NCCL's call that makes a communicator."""

_NUMBER = re.compile(r"[0-9]{1,9}")

MOST_RANKS = 2**22
"""More ranks than any job has ever had: higher numbers are damage, and nothing counts up to them."""


def get_process(global_tid: IntArray) -> IntArray:
    """Return the process keys of globalTid or globalPid values."""
    return global_tid >> 24


def get_main_thread(process: Keys) -> Keys:
    """Return the globalTid of the main thread of each process, given the key of the process."""
    return process << 24 | process & PID_MASK


_NCCL_NAMES = ("nccl", "pt_nccl", "NCCL Progress", "NCCL Service")
"""Starts of names of functions and kernels, of PyTorch threads that watch communicators, and of NCCL threads."""


class Launched(NamedTuple):
    """Rank that a launcher gave to the process that nsys launched, the number of ranks if known, and the variable."""

    rank: int
    size: int | None
    variable: str


class Metadata(ValueClass):
    """Metadata of a report. Times are ns; `utc_of_zero` is the UTC of timestamp 0.

    `duration`: length of the capture. `boot_utc`: UTC at which the machine started, if the export records it: the
    fingerprint of a node. `ranks`: rank of each process in MPI. `nccl_ranks`: rank of each process in the largest NCCL
    communicator that it initialised. `gpus`: GPUs by their numbers in nsys, and the MIG instances that processes use,
    by keys of report/gpus.py. `gpu_of_device`: (pid, CUDA ordinal in the process) -> key in `gpus`. `uses_nccl`:
    whether any name is the name of an NCCL kernel or call, or of a thread that exists with NCCL communicators. `begin`:
    timestamp at which the capture started: 0, unless the export was normalised or shifted. `gpu_of_ordinal`: CUDA
    ordinal -> key in `gpus`, for processes that `gpu_of_device` lacks. `gpu_clock_error`: how much more or less (ns)
    than it was corrected the clock of a GPU may be behind; 0 if none was corrected. `clock`: clock of the times: one of
    the clocks in report/export_settings.py.
    """

    schema_version: str
    nsys_version: str
    host: str
    utc_of_zero: int | None
    duration: int
    boot_utc: int | None
    environment: dict[str, str]
    processes: dict[int, str]
    threads: dict[int, str]
    ranks: dict[int, int]
    nccl_ranks: dict[int, int]
    gpus: dict[int, Gpu]
    gpu_of_device: dict[tuple[int, int], int]
    uses_nccl: bool = False
    begin: int = 0
    gpu_of_ordinal: dict[int, int] = field(default_factory=dict)
    gpu_clock_error: int = 0
    clock: str = export_settings.SYSTEM
    warnings: list[str] = field(default_factory=list)
    cpu: str = ""
    """Model of the CPUs of the node, and the number of cores; "" if the export does not tell."""
    script: str = ""
    """File name of the script in the command that nsys launched; "" without one."""
    rank_variable: str = ""
    """The variable of the rank that comes before the others in this job (`choose_rank_variable`)."""

    @property
    def end(self) -> int:
        """Timestamp (ns) at which the capture ended; FARTHEST if that is not known."""
        return self.begin + self.duration if self.duration > 0 else export_settings.FARTHEST

    def number(self, variable: str) -> int | None:
        """Return the number in a variable of the captured environment; None if it is not a number."""
        value = self.environment.get(variable, "")
        return int(value) if _NUMBER.fullmatch(value) else None

    @property
    def launched(self) -> Launched | None:
        """The rank in the captured environment, which is the environment of the process that nsys launched."""
        numbers = {name: number for name in self.environment if (number := self.number(name)) is not None}
        for variable in (self.rank_variable, *RANK_VARIABLES):
            if variable in numbers:
                size = next((numbers[name] for name in RANK_VARIABLES[variable] if name in numbers), None)
                return Launched(numbers[variable], size, variable)
        return None

    @property
    def rank(self) -> int | None:
        """The rank in the captured environment."""
        return self.launched.rank if self.launched is not None else None

    @property
    def job_size(self) -> int:
        """The number of ranks in the job: the one that belongs to the rank, else the largest that is known, or 0."""
        launched = self.launched
        known = max(self.number(name) or 0 for names in RANK_VARIABLES.values() for name in names)
        return (launched and launched.size) or known

    def find_rank(self, process: int, *, alone: bool) -> int | None:
        """Return the rank of a process in the job. `alone`: whether no other process may be a rank."""
        if process in self.ranks:
            return self.ranks[process]
        # The environment is that of the launched process: among several processes, nothing shows which one.
        if alone and self.rank is not None:
            return self.rank
        return self.nccl_ranks.get(process)

    def get_process_name(self, process: int) -> str:
        """Return the name of a process. PROCESSES lacks some profiled processes, but their main threads have names."""
        pid = process & PID_MASK
        name = self.processes.get(process) or self.threads.get(get_main_thread(process)) or ""
        return re.split(r"[/\\]", name)[-1] or f"process {pid}"

    def find_gpu(self, process: int, device: int) -> int:
        """Return the key of the GPU that a process calls `device`; `device` itself if nothing shows it."""
        return self.gpu_of_device.get((process & PID_MASK, device), self.gpu_of_ordinal.get(device, device))

    def get_gpu(self, key: int) -> Gpu:
        """Return a GPU by its key."""
        return self.gpus.get(key) or Gpu(key, "", "")

    def gpu(self, process: int, device: int) -> Gpu:
        """Return the GPU that a process calls `device`: CUDA ordinals differ from process to process."""
        return self.get_gpu(self.find_gpu(process, device))


def choose_rank_variable(reports: Sequence[Metadata]) -> None:
    """Let the rank of all reports of a job be that of the variable with most values; of several, of the first.

    A batch script may set another one, such as RANK, once for all (docs/development/programs.md).
    """
    values = {name: len({report.number(name) for report in reports} - {None}) for name in RANK_VARIABLES}
    for report in reports:
        report.rank_variable = max(values, key=values.__getitem__)


class Strings:
    """Names in a report by id. Rows whose id is not an integer are damage, and name nothing."""

    def __init__(self, database: Database) -> None:
        columns = database.read_objects("StringIds", ["id", "value"])
        rows = zip(columns["id"], columns["value"], strict=True)
        self._values = {int(i): value for i, value in rows if isinstance(i, int) or _is_whole(i)}

    def has_any(self, prefixes: tuple[str, ...]) -> bool:
        """Return whether any name starts with one of the prefixes."""
        return any(str(value).startswith(prefixes) for value in self._values.values())

    def find_matching_ids(self, matches: Callable[[str], object]) -> list[int]:
        """Return the ids of the names for which `matches` is true."""
        return [i for i, value in self._values.items() if matches(str(value))]

    def get_names(self, ids: IntArray) -> list[str]:
        """Return the name of each id; empty for an id that the export lacks."""
        return [str(self._values.get(i) or "") for i in ids.tolist()]

    def __call__(self, ids: IntArray) -> list[str]:
        """Return the names of distinct ids; an id that the export lacks (nsys omits some) is named by its number."""
        return ["(no name)" if i == NULL else str(self._values.get(int(i), f"name {i}")) for i in ids]


def _describe_cpu(values: Mapping[str, object]) -> str:
    """Return the model of the CPUs and the number of cores; "" if the export does not tell."""
    model, cores = (str(values.get(key) or "").strip() for key in ("CpuDescription", "CpuCores"))
    return escape_unprintable(f"{model}, {cores} cores" if model and cores else model)


def read_metadata(database: Database, strings: Strings) -> Metadata:
    """Read all metadata of an export; fields that its schema version lacks stay empty."""
    exported = export_settings.read_export_settings(database)
    system_values = dict(database.read_pairs("TARGET_INFO_SYSTEM_ENV"))
    start = database.read_objects("TARGET_INFO_SESSION_START_TIME", ["utcEpochNs", "systemClockNs"])
    utc, system_clock = (export_settings.read_time(next(iter(column), None)) for column in start.values())

    details = database.read_objects("ANALYSIS_DETAILS", ["duration"])
    threads = _read_thread_names(database, strings)
    utc_of_zero, clock = export_settings.read_exported_times(database, utc, exported)
    captured = database.read_pairs(export_settings.CAPTURE)
    environment = _choose_environment(captured, str(system_values.get("DeviceEnvironment") or ""))
    gpus, gpu_of_device, gpu_of_ordinal = find_gpus(
        _list_rows(database, "TARGET_INFO_GPU", ["id"], ["cuDevice", "name", "uuid", "busLocation"]),
        _list_rows(database, "TARGET_INFO_CUDA_DEVICE", ["pid", "cudaId"], ["gpuId", "uuid"]),
        environment.get("CUDA_VISIBLE_DEVICES"),
    )
    metadata = Metadata(
        schema_version=exported.get("EXPORT_SCHEMA_VERSION", "unknown"),
        nsys_version=exported.get("EXPORT_PRODUCT_VERSION", "unknown"),
        host=escape_unprintable(str(system_values.get("Hostname") or "unknown host")),
        utc_of_zero=utc_of_zero,
        begin=0 if utc is None or utc_of_zero is None else utc - utc_of_zero,
        duration=max((export_settings.read_time(duration) or 0 for duration in details["duration"]), default=0),
        boot_utc=utc - system_clock if utc is not None and system_clock is not None else None,
        environment=environment,
        processes={
            pid >> 24: str(name) for pid, name in _list_rows(database, "PROCESSES", ["globalPid"], ["name"]) if name
        },
        threads=threads,
        ranks=_read_mpi_ranks(database, threads),
        nccl_ranks=_read_nccl_ranks(database, strings),
        uses_nccl=strings.has_any(_NCCL_NAMES),
        gpus=gpus,
        gpu_of_device=gpu_of_device,
        gpu_of_ordinal=gpu_of_ordinal,
        clock=clock,
        cpu=_describe_cpu(system_values),
        script=_find_script(captured),
    )
    if utc_of_zero is None:
        metadata.warnings.append("it does not say when it was captured: its time is not aligned with other reports")
    metadata.warnings += [
        *export_settings.check_schema_version(metadata.schema_version),
        *export_settings.check_parts(exported),
    ]
    if database.ignored:
        metadata.warnings.append(f"tables {', '.join(database.ignored)} are not read, only those without a version")
    return metadata


def _choose_environment(captured: Sequence[tuple[str, Any]], device_environment: str) -> dict[str, str]:
    """Return the allowed variables of the captured environment."""
    between = "\0" if "\0" in device_environment else ";"  # NUL up to 2022
    variables = dict(entry.split("=", 1) for entry in device_environment.split(between) if "=" in entry)
    for name, value in captured:
        if name.endswith(":ENVIRONMENT_VARIABLE") and "=" in str(value):
            variable, content = str(value).split("=", 1)
            variables[variable] = content.strip('"')
    return {name: value for name, value in variables.items() if ALLOWED_ENVIRONMENT.fullmatch(name)}


_ARGUMENT = re.compile(r"PROCESS_[0-9]+:ARGUMENT_[0-9]+")
_SCRIPT = re.compile(r"\w[\w.-]{0,99}\.py")


def _find_script(captured: Sequence[tuple[str, Any]]) -> str:
    """Return the file name of the first script among the arguments of the launched command; "" without one.

    Nothing else of a command is read, which can contain secrets.
    """
    arguments = (value for name, value in captured if _ARGUMENT.fullmatch(name))
    names = (re.split(r"[/\\]", str(value))[-1] for value in arguments if not str(value).startswith("-"))
    return next((name for name in names if _SCRIPT.fullmatch(name)), "")


def _read_thread_names(database: Database, strings: Strings) -> dict[int, str]:
    """Return names by globalTid: names in the operating system, replaced by names given through NVTX (eventType 39)."""
    rows = _list_rows(database, "ThreadNames", ["globalTid", "nameId"])
    names = strings(np.array([name_id for _, name_id in rows], np.int64))
    threads = {tid: name for (tid, _), name in zip(rows, names, strict=True)}
    is_name = {"eventType": [_NVTX_THREAD_NAME]}
    for tid, text, text_id in _list_rows(database, "NVTX_EVENTS", ["globalTid"], ["text", "textId"], is_name):
        known_id = export_settings.read_integer(text_id)
        name = text or (strings(np.array([known_id], np.int64))[0] if known_id is not None else "")
        if name:
            threads[tid] = str(name)
    return threads


def _read_nccl_ranks(database: Database, strings: Strings) -> dict[int, int]:
    """Read ranks from the payload of ncclCommInitRank and its variants: JSON text up to schema 3.23, then bytes.

    If the export has neither, payloads may be tables.
    """
    ids = strings.find_matching_ids(_INIT_RANK.fullmatch)
    if not ids:
        return {}
    names = ["globalTid", "jsonText", "binaryData", "domainId", "eventId"]
    calls = database.read_objects("NVTX_EVENTS", names, {"textId": ids})
    has_blobs = any(blob is not None for blob in calls["binaryData"])
    layout = PayloadLayout(lambda table: database.read(table, ""), _RANKS) if has_blobs else None
    largest: dict[int, tuple[int, int]] = {}
    columns = [calls[name] for name in names[:3]]
    for tid, text, blob, fields in zip(*columns, _read_rank_tables(database, calls), strict=True):
        try:
            if text:
                fields = json.loads(text)
            elif layout and blob is not None:
                fields = layout.fields(blob)
            size, rank, process = int(fields[_RANKS]), int(fields[_RANK]), int(tid) >> 24
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            continue
        if size > largest.get(process, (0, 0))[0] and 0 <= rank < size < MOST_RANKS:
            largest[process] = size, rank
    return {process: rank for process, (_, rank) in largest.items()}


def _read_rank_tables(database: Database, calls: dict[str, list[Any]]) -> list[Any]:
    """Return the fields of each call's payload, read from tables; None for calls without a payload."""
    columns = (map(export_settings.read_integer, calls[name]) for name in ("eventId", "globalTid", "domainId"))
    event, tid, domain = (np.array([NULL if v is None else v for v in column], np.int64) for column in columns)
    index, payloads = read_payload_tables(database, event, tid >> 24, domain, (_RANKS, _RANK))
    return [payloads[i] if i >= 0 else None for i in index.tolist()]


def _read_mpi_ranks(database: Database, threads: dict[int, str]) -> dict[int, int]:
    """Read ranks from MPI_RANKS; in reports without this table, from the names that nsys gives to MPI threads."""
    if rows := _list_rows(database, "MPI_RANKS", ["globalTid", "rank"]):
        return {tid >> 24: rank for tid, rank in rows if 0 <= rank < MOST_RANKS}
    named = ((tid, re.fullmatch(rf"MPI Rank ({_NUMBER.pattern})", name)) for tid, name in threads.items())
    return {tid >> 24: int(match[1]) for tid, match in named if match}


def _list_rows(
    database: Database, table: str, integers: list[str], others: Sequence[str] = (), among: Among | None = None
) -> list[tuple[Any, ...]]:
    """Return the rows of a small table: columns that are integers, then others. Skip rows with other values in these.

    For `among`, see `Database.read_objects`.
    """
    columns = database.read_objects(table, [*integers, *others], among)
    read = (map(export_settings.read_integer, columns[name]) for name in integers)
    rows = zip(*read, *(columns[name] for name in others), strict=True)
    return [row for row in rows if None not in row[: len(integers)]]


def _is_whole(value: object) -> bool:
    """Return whether a value is a float that equals a 64-bit integer."""
    return isinstance(value, float) and export_settings.read_integer(value) == value
