"""The content of reports, by plain SQL and plain loops: the truth that tests compare traces with."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

PID = 0xFFFFFF
OPERATION_TABLES = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
# ENUM_CUDA_MEMCPY_OPER of the exports, in the words of the trace.
COPY_LABELS = {
    0: "Memcpy, unknown kind",
    1: "Memcpy host to device",
    2: "Memcpy device to host",
    3: "Memcpy host to array",
    4: "Memcpy array to host",
    5: "Memcpy array to array",
    6: "Memcpy array to device",
    7: "Memcpy device to array",
    8: "Memcpy device to device",
    9: "Memcpy host to host",
    10: "Memcpy peer to peer",
    11: "Migration host to device",
    12: "Migration device to host",
    13: "Migration device to device",
}
PUSH_POP, START_END, MARK = "push/pop", "start/end", "mark"
_STYLES = {59: PUSH_POP, 70: PUSH_POP, 60: START_END, 71: START_END, 34: MARK, 65: MARK}


class Report:
    """A report's events as tables with begin and end on the report's own clock (ns)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        names = self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self.tables = {name for (name,) in names}

    def sql(self, query: str) -> pd.DataFrame:
        """Return the rows of a query."""
        return pd.read_sql_query(query, self.connection)

    def has(self, table: str) -> bool:
        return table in self.tables

    def value(self, query: str) -> object:
        """Return the first value of the first row of a query."""
        return self.connection.execute(query).fetchone()[0]

    def count(self, table: str) -> int:
        """Return the number of rows of a table, 0 if it is missing."""
        return self.connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] if self.has(table) else 0

    def list_graph_nodes(self) -> set[int]:
        """Return when nodes of CUDA graphs begin (UTC)."""
        found: set[int] = set()
        for table in ("KERNEL", "MEMCPY", "MEMSET"):
            name = f"CUPTI_ACTIVITY_KIND_{table}"
            if self.has(name) and "graphNodeId" in self.sql(f"SELECT * FROM {name} LIMIT 0"):
                starts = self.sql(f"SELECT start FROM {name} WHERE COALESCE(graphNodeId, 0) != 0")["start"]
                found |= set((starts + self.utc).tolist())
        return found

    # ---- events ------------------------------------------------------------------------------------------------------

    @cached_property
    def operations(self) -> pd.DataFrame:
        """Kernels, copies, sets and graphs traced as a whole: table, begin, end, process, device, context, stream,
        correlation, name, bytes, and lane (the first one of the stream that is free).
        """
        parts = [self._read_operations(table) for table in OPERATION_TABLES if self.has(f"CUPTI_ACTIVITY_KIND_{table}")]
        empty = pd.DataFrame(columns=["table", "begin", "end", *_STREAM, "correlation", "name", "bytes"])
        joined = pd.concat(parts, ignore_index=True) if parts else empty
        lanes = np.zeros(len(joined), np.int64)
        for _, operations in joined.groupby(list(_STREAM)):
            free_at: list[int] = []
            in_order = operations.sort_values("begin", kind="stable")
            for index, begin, end in zip(in_order.index, in_order["begin"], in_order["end"], strict=True):
                lane = next((i for i, time in enumerate(free_at) if time <= begin), len(free_at))
                free_at[lane : lane + 1] = [end]
                lanes[index] = lane
        return joined.assign(lane=lanes)

    def _read_operations(self, table: str) -> pd.DataFrame:
        name, size = {
            "KERNEL": ("s.value", "0"),
            "MEMCPY": ("o.copyKind", "o.bytes"),
            "MEMSET": ("NULL", "o.bytes"),
            "GRAPH_TRACE": ("'graph ' || o.graphId", "0"),
        }[table]
        join = "JOIN StringIds s ON s.id = o.shortName" if table == "KERNEL" else ""
        frame = self.sql(
            f"""SELECT '{table}' AS "table", o.start AS begin, o."end", o.globalPid >> 24 AS process,
            o.deviceId AS device, o.contextId AS context, o.streamId AS stream,
            COALESCE(o.correlationId, 0) AS correlation, {name} AS name, {size} AS bytes
            FROM CUPTI_ACTIVITY_KIND_{table} o {join} ORDER BY o.rowid"""
        )
        if table in ("MEMCPY", "MEMSET"):
            frame["name"] = "Memset" if table == "MEMSET" else frame["name"].map(COPY_LABELS)
        return frame

    @cached_property
    def calls(self) -> pd.DataFrame:
        """CUDA API calls: begin, end, tid, correlation, name without the version."""
        if not self.has("CUPTI_ACTIVITY_KIND_RUNTIME"):
            return pd.DataFrame(columns=["begin", "end", "tid", "correlation", "name"])
        frame = self.sql(
            """SELECT r.start AS begin, r."end", r.globalTid AS tid, COALESCE(r.correlationId, 0) AS correlation,
            s.value AS name FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId"""
        )
        return frame.assign(
            name=frame["name"].map({name: re.sub(r"_v[0-9]+$", "", name) for name in frame["name"].unique()})
        )

    @cached_property
    def nvtx(self) -> pd.DataFrame:
        """NVTX ranges and marks: begin, end (the begin for marks), tid, style, domain, text, category (name or '')."""
        columns = ["begin", "end", "tid", "style", "domain", "text", "category"]
        if not self.has("NVTX_EVENTS"):
            return pd.DataFrame(columns=columns)
        frame = self.sql(
            """SELECT n.start AS begin, COALESCE(n."end", n.start) AS "end", n.globalTid AS tid, n.eventType AS kind,
            n.globalTid >> 24 AS process, COALESCE(n.domainId, 0) AS domain_id, COALESCE(n.category, 0) AS category_id,
            COALESCE(n.text, s.value, '(no name)') AS text
            FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId"""
        )
        key = list(zip(frame["process"], frame["domain_id"], strict=True))
        category_key = list(zip(frame["process"], frame["domain_id"], frame["category_id"], strict=True))
        domains = {k: text for k, kind, text in zip(key, frame["kind"], frame["text"], strict=True) if kind == 75}
        categories = {
            k: text for k, kind, text in zip(category_key, frame["kind"], frame["text"], strict=True) if kind == 33
        }
        frame["text"] = frame["text"].replace("", "(unnamed)")
        frame["style"] = frame["kind"].map(_STYLES)
        frame["key"] = key
        frame["category"] = ["" if k[2] == 0 else categories.get(k, f"category {k[2]}") for k in category_key]
        frame = frame[frame["style"].notna()]
        for (process, domain_id), texts in frame.groupby("key")["text"]:
            if domain_id == 0:
                domains[process, domain_id] = ""
            elif not domains.get((process, domain_id)):
                is_nccl = all(text.startswith("nccl") for text in texts)
                domains[process, domain_id] = "NCCL" if is_nccl else f"domain {domain_id}"
        return frame.assign(domain=[domains[k] for k in frame["key"]])[columns].reset_index(drop=True)

    @property
    def first_event(self) -> int | None:
        """Begin of the first event, None if there is none."""
        begins = [frame["begin"].min() for frame in (self.operations, self.calls, self.nvtx) if len(frame)]
        # The making of a graph and of its nodes: in most reports these events lie within calls.
        for table in ("CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS"):
            if self.count(table):
                begins.append(self.value(f"SELECT MIN(start) FROM {table}"))
        return int(min(begins)) if begins else None

    @property
    def last_event(self) -> int:
        return int(max(frame["end"].max() for frame in (self.operations, self.calls, self.nvtx) if len(frame)))

    # ---- metadata ----------------------------------------------------------------------------------------------------

    @cached_property
    def utc(self) -> int:
        """UTC (ns) of timestamp 0."""
        return int(self.value("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME"))

    @cached_property
    def duration(self) -> int:
        return int(self.value("SELECT MAX(duration) FROM ANALYSIS_DETAILS"))

    @cached_property
    def host(self) -> str:
        return str(self.value("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'"))

    @cached_property
    def environment(self) -> dict[str, str]:
        """Variables of the captured environment; later schemas keep one in each row."""
        if not self.has("META_DATA_CAPTURE"):
            return {}
        rows = self.connection.execute("SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%ENVIRONMENT_VARIABLE'")
        return {name: value.strip('"') for name, _, value in (row.partition("=") for (row,) in rows)}

    @cached_property
    def launched_rank(self) -> int | None:
        """Rank in the environment of the process that was launched."""
        ranks = [int(self.environment[name]) for name in RANK_VARIABLES if self.environment.get(name)]
        return ranks[0] if ranks else None

    @cached_property
    def mpi_ranks(self) -> dict[int, int]:
        if self.has("MPI_RANKS"):
            return dict(self.connection.execute("SELECT globalTid >> 24, rank FROM MPI_RANKS").fetchall())
        if not self.has("NVTX_EVENTS"):
            return {}
        # Before 2023 nsys gave the rank only in the name of a thread.
        query = """SELECT n.globalTid >> 24, replace(coalesce(n.text, s.value), 'MPI Rank ', '') FROM NVTX_EVENTS n
            LEFT JOIN StringIds s ON s.id = n.textId
            WHERE n.eventType = 39 AND coalesce(n.text, s.value) GLOB 'MPI Rank [0-9]*'"""
        return {process: int(rank) for process, rank in self.connection.execute(query)}

    @cached_property
    def nccl_ranks(self) -> dict[int, int]:
        """Rank of each process in its largest communicator, by the payload of ncclCommInitRank."""
        if not self.has("NVTX_EVENTS") or "jsonText" not in self.sql("SELECT * FROM NVTX_EVENTS LIMIT 0").columns:
            return {}
        size_and_rank: dict[int, tuple[int, int]] = {}
        query = """SELECT n.globalTid >> 24, n.jsonText FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId
            WHERE s.value LIKE 'ncclCommInitRank%' AND n.jsonText IS NOT NULL"""
        for process, text in self.connection.execute(query):
            payload = json.loads(text)
            size = int(payload["No. of ranks"])
            if size > size_and_rank.get(process, (0, 0))[0]:
                size_and_rank[process] = size, int(payload["Rank"])
        return {process: rank for process, (_, rank) in size_and_rank.items()}

    def find_gpu(self, process: int, device: int) -> int:
        """Return nsys's number of the GPU that a process, which sees all GPUs if no table names it, calls `device`."""
        if self.has("TARGET_INFO_CUDA_DEVICE"):
            query = "SELECT gpuId FROM TARGET_INFO_CUDA_DEVICE WHERE pid = ? AND cudaId = ?"
            row = self.connection.execute(query, (process & PID, device)).fetchone()
        elif self.has("TARGET_INFO_GPU"):
            row = self.connection.execute("SELECT id FROM TARGET_INFO_GPU WHERE cuDevice = ?", (device,)).fetchone()
        else:
            row = None
        return device if row is None else row[0]

    def find_gpu_uuid(self, number: int) -> str:
        """Return the uuid of the GPU with nsys's number, or the number where the export has no uuid."""
        query = "SELECT uuid FROM TARGET_INFO_GPU WHERE id = ?"
        row = self.connection.execute(query, (number,)).fetchone() if self.has("TARGET_INFO_GPU") else None
        return row[0] if row and row[0] else str(number)

    def find_process_name(self, process: int) -> str:
        """Return the name of a process without its folder, or its main thread's, or "process PID"."""
        query = "SELECT name FROM PROCESSES WHERE globalPid >> 24 = ? AND name IS NOT NULL"
        row = self.connection.execute(query, (process,)).fetchone() if self.has("PROCESSES") else None
        name = row[0] if row else self._thread_names.get(process << 24 | process & PID, "")
        return name.rsplit("/", 1)[-1] or f"process {process & PID}"

    def find_thread_name(self, tid: int) -> str:
        return self._thread_names.get(tid) or self.find_process_name(tid >> 24)

    @cached_property
    def _thread_names(self) -> dict[int, str]:
        """Names of threads: those of the operating system, replaced by those given through NVTX."""
        names: dict[int, str] = {}
        if self.has("ThreadNames"):
            query = "SELECT t.globalTid, s.value FROM ThreadNames t JOIN StringIds s ON s.id = t.nameId"
            names.update(self.connection.execute(query).fetchall())
        if self.has("NVTX_EVENTS"):
            query = """SELECT n.globalTid, COALESCE(n.text, s.value) FROM NVTX_EVENTS n
                LEFT JOIN StringIds s ON s.id = n.textId WHERE n.eventType = 39"""
            names.update((tid, name) for tid, name in self.connection.execute(query) if name)
        return names


_STREAM = ("process", "device", "context", "stream")
_PLACE = (*_STREAM, "lane")


# ---- objects ---------------------------------------------------------------------------------------------------------


@dataclass
class ExpectedTask:
    """A process: its name, and keys of its rows that sort as the rows do."""

    name: str
    report: int
    process: int
    order: tuple[int, ...]
    rank: int | None
    is_child: bool
    threads: set[int] = field(default_factory=set)
    streams: set[tuple[int, ...]] = field(default_factory=set)


class Objects:
    """Tasks and rows that a trace of reports of different processes must have, ranks first.

    tasks: names. rows: names. thread_row: row by (index of the report, globalTid); stream_row: row by (index of the
    report, process, device, context, stream, lane); device_row: row of the GPU as a whole, on the first task that used
    it, by (index of the report, nsys's number of the GPU); task_of_process: task, from 0, by (index of the report,
    process).
    """

    def __init__(self, reports: Sequence[Report]) -> None:
        self.reports = reports
        tasks: list[ExpectedTask] = []
        order = sorted(range(len(reports)), key=lambda i: (reports[i].utc, reports[i].host, reports[i].path.name))
        for position, index in enumerate(order):
            tasks += self._list_tasks(reports[index], index, position)
        tasks.sort(key=lambda task: (task.rank is None, task.rank or 0, task.order))
        self.tasks, self.rows, self.hosts = [], [], []
        self.thread_row: dict[tuple[int, int], int] = {}
        self.stream_row: dict[tuple[int, ...], int] = {}
        self.device_row: dict[tuple[int, int], int] = {}
        self._row_of_gpu: dict[tuple[str, str], int] = {}
        self._thread_of_row: dict[int, tuple[int, str]] = {}
        self.task_of_process: dict[tuple[int, int], int] = {}
        names = [task.name for task in tasks]
        for task in tasks:
            if names.count(task.name) > 1:
                task.name += f" {task.process & PID}"
            self._add(task)
        self._distinguish()

    def _list_tasks(self, report: Report, index: int, position: int) -> list[ExpectedTask]:
        callers = report.calls["tid"].unique().tolist()
        threads = {*callers, *report.nvtx["tid"].unique().tolist()}
        places = report.operations[list(_PLACE)].drop_duplicates()
        streams = set(places.itertuples(index=False, name=None))
        nccl = report.nvtx.loc[report.nvtx["domain"] == "NCCL", "tid"].unique().tolist()
        called = {tid >> 24 for tid in threads} | {stream[0] for stream in streams}
        application = {tid >> 24 for tid in (*callers, *nccl)} | {stream[0] for stream in streams}
        if not application and len(called) == 1:
            application = called
        tasks = []
        for process in sorted(called):
            name = report.find_process_name(process)
            is_child = process not in application
            if is_child:
                rank = None
                name = name if report.launched_rank is None else f"rank {report.launched_rank}: {name}"
            else:
                rank = report.mpi_ranks.get(process)
                if rank is None and len(application) == 1:
                    rank = report.launched_rank
                if rank is None:
                    rank = report.nccl_ranks.get(process)
                name = f"{name} {process & PID}" if rank is None else f"rank {rank}"
            launched = report.launched_rank
            position_of_rank = (int(launched is None), launched or 0, position, process)
            sort_key = (1, position, process) if is_child else (0, *position_of_rank)
            task = ExpectedTask(name, index, process, sort_key, rank, is_child)
            task.threads = {tid for tid in threads if tid >> 24 == process}
            task.streams = {stream for stream in streams if stream[0] == process}
            tasks.append(task)
        return tasks

    def _add(self, task: ExpectedTask) -> None:
        report = self.reports[task.report]
        self.task_of_process[task.report, task.process] = len(self.tasks)
        self.tasks.append(task.name)
        self.hosts.append(report.host)
        # The main thread first, whose id is the process's.
        threads = sorted(task.threads, key=lambda tid: (tid & PID != task.process & PID, tid & PID))
        rank = task.rank if not task.is_child else report.launched_rank
        for tid in threads:
            self.thread_row[task.report, tid] = len(self.rows)
            self._thread_of_row[len(self.rows)] = (tid & PID, report.host)
            self.rows.append(
                report.find_thread_name(tid) if rank is None else f"r{rank} {report.find_thread_name(tid)}"
            )
        by_gpu = sorted(
            (report.find_gpu(task.process, stream[1]), stream[3], stream[2], stream[4], stream[1])
            for stream in task.streams
        )
        first_context: dict[tuple[int, int], int] = {}
        for gpu, number, context, _, _ in by_gpu:
            first_context.setdefault((gpu, number), context)
        for gpu, number, context, lane, device in by_gpu:
            self.stream_row[task.report, task.process, device, context, number, lane] = len(self.rows)
            is_first = context == first_context[gpu, number]
            self.rows.append(f"CUDA-D{gpu}.S{number if is_first else 1000 * number + context}")
        for gpu in sorted({gpu for gpu, *_ in by_gpu}):
            identity = (report.host, report.find_gpu_uuid(gpu))
            if identity not in self._row_of_gpu:
                self._row_of_gpu[identity] = len(self.rows)
                self.rows.append(f"Metrics GPU{gpu}")
            self.device_row[task.report, gpu] = self._row_of_gpu[identity]

    def _distinguish(self) -> None:
        """Add the thread's id, then the host, to labels of host threads where rows share them."""
        repeated = Counter(self.rows)
        for row, (tid, _) in self._thread_of_row.items():
            if repeated[self.rows[row]] > 1:
                self.rows[row] += f" {tid}"
        repeated = Counter(self.rows)
        for row, (_, host) in self._thread_of_row.items():
            if repeated[self.rows[row]] > 1:
                self.rows[row] = f"{host} {self.rows[row]}"


# ---- events of several reports ---------------------------------------------------------------------------------------


def find_main_rows(objects: Objects) -> dict[int, int | None]:
    """Return the row of the main thread of the process of each thread, by row; None where it has none."""
    mask = (1 << 24) - 1
    return {
        row: objects.thread_row.get((index, tid & ~mask | tid >> 24 & mask))
        for (index, tid), row in objects.thread_row.items()
    }


def list_operations(objects: Objects) -> pd.DataFrame:
    """Return the device operations of all reports: row, task, the columns of `Report`; begin and end are UTC."""
    keys = ("process", "device", "context", "stream", "lane")
    return _join_in_utc(
        objects,
        [
            report.operations.assign(
                row=[
                    objects.stream_row[(index, *key)] for key in zip(*(report.operations[k] for k in keys), strict=True)
                ],
                task=[objects.task_of_process[index, process] for process in report.operations["process"]],
            )
            for index, report in enumerate(objects.reports)
        ],
    )


BETWEEN_GPUS = "Memcpy peer to peer"


def list_gpu_operations(objects: Objects) -> pd.DataFrame:
    """Return `list_operations` with `gpu_row`, the row of the GPU; kind: 1 compute, 2 communication, 4 memory (6
    between GPUs), 16 a whole graph in a job that uses NCCL; `launched` (UTC, of kernels and graphs) and `delay` (ns
    from the end of the call), from the call that has the correlation id in the process.
    """
    listed = list_operations(objects)
    devices, call_times = [], []
    for index, report in enumerate(objects.reports):
        first = report.calls.assign(process=[int(tid) >> 24 for tid in report.calls["tid"]]).sort_values("begin")
        first = first.drop_duplicates(["process", "correlation"])[["process", "correlation", "begin", "end"]]
        first = first.astype({"begin": "Int64", "end": "Int64"})  # a call that is missing must not make them floats
        with_calls = report.operations.merge(first, "left", ["process", "correlation"], suffixes=("", "_call"))
        call_times.append(with_calls[["begin_call", "end_call"]] + report.utc)
        pairs = zip(with_calls["process"], with_calls["device"], strict=True)
        devices += [objects.device_row[index, report.find_gpu(*pair)] for pair in pairs]
    call = pd.concat(call_times, ignore_index=True).where(listed["correlation"] != 0)
    is_nccl = (listed["table"] == "KERNEL") & listed["name"].str.startswith("nccl")
    kind = np.where(listed["table"].isin(("MEMCPY", "MEMSET")), 4, np.where(is_nccl, 2, 1))
    kind = np.where(listed["name"] == BETWEEN_GPUS, 4 + 2, kind)
    if uses_nccl(objects.reports):
        kind = np.where(listed["table"] == "GRAPH_TRACE", 16, kind)
    launched = call["begin_call"].fillna(listed["begin"]).astype(np.int64)
    delay = listed["begin"] - call["end_call"]
    launched = np.minimum(launched, listed["begin"])
    return listed.assign(gpu_row=devices, kind=kind, launched=launched, delay=delay.where(delay >= 0))


def uses_nccl(reports: Iterable[Report]) -> bool:
    """Return whether any report has a kernel or a range of NCCL."""
    kernels = """SELECT 1 FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
        WHERE s.value LIKE 'nccl%' LIMIT 1"""
    return any(
        (report.has("CUPTI_ACTIVITY_KIND_KERNEL") and len(report.sql(kernels)) > 0)
        or (report.nvtx["domain"] == "NCCL").any()
        for report in reports
    )


def list_calls(objects: Objects) -> pd.DataFrame:
    """Return the CUDA API calls of all reports: row, the columns of `Report`; begin and end are UTC."""
    return _join_in_utc(
        objects, [_add_thread_rows(objects, i, report.calls) for i, report in enumerate(objects.reports)]
    )


def list_nvtx(objects: Objects) -> pd.DataFrame:
    """Return the NVTX ranges and marks of all reports: row, the columns of `Report`; begin and end are UTC."""
    return _join_in_utc(
        objects, [_add_thread_rows(objects, i, report.nvtx) for i, report in enumerate(objects.reports)]
    )


def list_launch_lines(objects: Objects) -> pd.DataFrame:
    """Return the lines from calls to what they launched: send_row, send, receive_row, receive (UTC), size, tag.

    There is one line for each operation with a recorded call in its process. The operations of a graph share the id of
    its launch: only the first on each stream has a line. Kernels and graphs have tag 55001, copies and sets 55002 and
    their bytes.
    """
    lines = []
    for index, report in enumerate(objects.reports):
        call_of_launch: dict[tuple[int, int], tuple[int, int]] = {}
        for begin, tid, correlation in sorted(
            zip(report.calls["begin"], report.calls["tid"], report.calls["correlation"], strict=True)
        ):
            call_of_launch.setdefault((tid >> 24, correlation), (tid, begin))
        launched = set()
        for operation in report.operations.sort_values("begin", kind="stable").itertuples():
            call = call_of_launch.get((operation.process, operation.correlation))
            launch = (operation.process, operation.correlation, operation.device, operation.context, operation.stream)
            if call is None or not operation.correlation or launch in launched:
                continue
            launched.add(launch)
            key = (operation.process, operation.device, operation.context, operation.stream, operation.lane)
            row, stream_row = objects.thread_row[index, call[0]], objects.stream_row[(index, *key)]
            tag = 55002 if operation.table in ("MEMCPY", "MEMSET") else 55001
            times = call[1] + report.utc, operation.begin + report.utc
            lines.append((row, times[0], stream_row, times[1], operation.bytes, tag))
    columns = ["send_row", "send", "receive_row", "receive", "size", "tag"]
    return pd.DataFrame(lines, columns=columns).astype(np.int64)


def _add_thread_rows(objects: Objects, index: int, events: pd.DataFrame) -> pd.DataFrame:
    return events.assign(row=[objects.thread_row[index, tid] for tid in events["tid"]])


def _join_in_utc(objects: Objects, parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    in_utc = [
        part.assign(begin=part["begin"] + report.utc, end=part["end"] + report.utc)
        for part, report in zip(parts, objects.reports, strict=True)
    ]
    filled = [part for part in in_utc if len(part)]
    return pd.concat(filled, ignore_index=True) if filled else in_utc[0]


# ---- texts -----------------------------------------------------------------------------------------------------------

_PYTORCH = re.compile(r"(.*?), (?:(?:seq|op_id) = -?\d+(?:,.*)?|(?:sizes|input_op_ids) = \[.*)", re.ASCII)
_FINAL = re.compile(r"(.*?)[ :=#]+(-?\d+)", re.ASCII)


def split_name(text: str) -> tuple[str, int | None]:
    """Return the name of a text in the trace, and the number cut off: PyTorch's op_id or seq, or a final integer."""
    name, number = " ".join(text.split()), None
    match = _PYTORCH.fullmatch(name)
    if match:
        fields = dict(re.findall(r", (seq|op_id) = (-?\d+)(?=,|$)", name[len(match[1]) :]))
        number = fields.get("op_id", fields.get("seq"))
        name = match[1]
    match = _FINAL.fullmatch(name)
    if match and re.search(r"[^-\d :=#]", match[1]):
        name, number = match[1], number if number is not None else match[2]
    return name[:500], None if number is None else int(number)
