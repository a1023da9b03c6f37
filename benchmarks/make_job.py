"""A job of many reports made of a few: copies with other nodes, ranks, processes, GPUs and clocks.

Each copy of the given reports is a part of one job. Host names, ranks, process and thread ids, the uuids and PCI
addresses of GPUs, and the session are new; peers of NCCL messages are ranks of the copy; and the communicators span the
whole job, as in data-parallel training. The clocks of the nodes are up to 1 ms off, those of the first copy are right.
Events and their times are those of the given reports.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

CLOCK_ERROR_NS = 10**6
_PID_STEP = 1009
"""Added to the process and thread ids of each further copy."""


def make_job(reports: Sequence[Path], count: int, folder: Path) -> list[Path]:
    """Write `count` reports into a folder and return their paths.

    The given reports are SQLite exports of one process each. Raises ValueError if `count` is no multiple
    of their number.
    """
    if count % len(reports):
        raise ValueError(f"{count} is no multiple of {len(reports)} reports")
    hosts = sorted({_read_host(report) for report in reports})
    copies = count // len(reports)
    clocks = np.random.default_rng(1).integers(-CLOCK_ERROR_NS, CLOCK_ERROR_NS, (copies, len(hosts)))
    clocks[0] = 0
    made = []
    for copy in range(copies):
        for number, report in enumerate(reports):
            path = folder / f"rank{copy * len(reports) + number:03}.sqlite"
            shutil.copyfile(report, path)
            node = hosts.index(_read_host(report))
            part = _Part(copy, copies, len(reports), hosts, node, int(clocks[copy, node]))
            with closing(sqlite3.connect(path, isolation_level=None)) as database:
                part.rewrite(database)
            made.append(path)
    return made


def write_shortened(report: Path, path: Path, rows: int = 100) -> Path:
    """Write a copy of a report with the first rows of each table of events: to translate it takes start-up alone."""
    shutil.copyfile(report, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for table in _list_tables(database):
            if _has_events(table):
                database.execute(f'DELETE FROM "{table}" WHERE rowid > {rows}')
        database.execute("VACUUM")
    return path


def write_first_part(reports: Sequence[Path], folder: Path, share: float, every: int) -> list[Path]:
    """Write copies of reports that end early, with each `every`th sample of GPU metrics; return their paths.

    `share`: of the time in which all reports have kernels. Metrics of one time are kept together.
    """
    written, spans, epochs = [], [], []
    for report in reports:
        written.append(Path(shutil.copyfile(report, folder / report.name)))
        with closing(sqlite3.connect(written[-1])) as database:
            (epoch,) = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
            span = database.execute("SELECT min(start), max(start) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        epochs.append(epoch)
        spans.append([epoch + time for time in span])
    first, last = max(begin for begin, _ in spans), min(end for _, end in spans)
    for path, epoch in zip(written, epochs, strict=True):
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            _shorten(database, first + int(share * (last - first)) - epoch, every)
    return written


def _shorten(database: sqlite3.Connection, end: int, every: int) -> None:
    """Delete the events that start after a time (ns), and GPU metrics but those of each `every`th time.

    NVTX ranges that are open then have no end, as where a capture stops.
    """
    for table in filter(_has_events, _list_tables(database)):
        for column in {"start", "timestamp"} & set(_list_columns(database, table)):
            database.execute(f'DELETE FROM "{table}" WHERE "{column}" > ?', (end,))
    database.execute("UPDATE NVTX_EVENTS SET end = NULL WHERE end > ?", (end,))
    if "GPU_METRICS" in _list_tables(database):
        times = "SELECT timestamp, dense_rank() OVER (ORDER BY timestamp) AS number FROM GPU_METRICS"
        kept = f"SELECT timestamp FROM ({times}) WHERE number % {every} = 0"
        database.execute(f"DELETE FROM GPU_METRICS WHERE timestamp NOT IN ({kept})")
    database.execute("VACUUM")


class _Part:
    """One report of a copy of the given reports: its place in the job."""

    def __init__(self, copy: int, copies: int, ranks: int, hosts: Sequence[str], node: int, clock_ns: int) -> None:
        self.copy, self.first_rank, self.size = copy, copy * ranks, copies * ranks
        self.first_node, self.nodes = copy * len(hosts), copies * len(hosts)
        self.host, self.node, self.clock_ns = hosts[node], copy * len(hosts) + node, clock_ns
        self.new_host = f"{self.host.rstrip('0123456789')}{self.node + 1:03}"

    def rewrite(self, database: sqlite3.Connection) -> None:
        """Give a copy of the report the identity of this part."""
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.execute("BEGIN")
        self._rewrite_identifiers(database)
        self._rewrite_texts(database)
        database.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + ?", (self.clock_ns,))
        database.execute("COMMIT")

    def _rewrite_identifiers(self, database: sqlite3.Connection) -> None:
        """Change process and thread ids, also within global ids: <hardware:8><VM:8><process:24><thread:24>."""
        step = self.copy * _PID_STEP
        for table in _list_tables(database):
            for column in _list_columns(database, table):
                if column in ("globalTid", "endGlobalTid"):
                    new, has_process = f'"{column}" + {step << 24 | step}', f'"{column}" >> 24 & 0xFFFFFF'
                elif column == "globalPid":
                    new, has_process = f'"{column}" + {step << 24}', f'"{column}" >> 24 & 0xFFFFFF'
                elif column in ("pid", "processId"):
                    new, has_process = f'"{column}" + {step}', f'"{column}"'
                else:
                    continue
                database.execute(f'UPDATE "{table}" SET "{column}" = {new} WHERE "{column}" > 0 AND {has_process}')

    def _rewrite_texts(self, database: sqlite3.Connection) -> None:
        """Change host names, variables, GPUs and payloads. Raises ValueError if payloads are bytes."""
        if database.execute("SELECT 1 FROM NVTX_EVENTS WHERE binaryData IS NOT NULL LIMIT 1").fetchone():
            raise ValueError("NVTX payloads are bytes: take reports of a schema before 3.24")
        for name in ("environment", "gpu", "payload"):
            database.create_function(name, 1, getattr(self, f"_change_{name}"), deterministic=True)
        for table in ("TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE"):
            database.execute(f"UPDATE {table} SET value = environment(gpu(value))")
        database.execute("UPDATE TARGET_INFO_GPU SET uuid = gpu(uuid), busLocation = gpu(busLocation)")
        database.execute("UPDATE NVTX_EVENTS SET jsonText = payload(jsonText) WHERE jsonText IS NOT NULL")

    def _change_environment(self, text: str | None) -> str | None:
        """Change host name, ranks, sizes and the id of the session."""
        if text is None:
            return None
        text = text.replace(self.host, self.new_host)
        for names, change in {
            "RANK|SLURM_PROCID": lambda value: value + self.first_rank,
            "SLURM_NODEID": lambda value: value + self.first_node,
            "WORLD_SIZE": lambda value: self.size,
            "SLURM_NNODES": lambda value: self.nodes,
        }.items():
            pattern = rf'\b({names})=("?)(\d+)'
            text = re.sub(pattern, lambda m, change=change: f"{m[1]}={m[2]}{change(int(m[3]))}", text)
        if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text):
            return str(uuid.uuid5(uuid.UUID(text), str(self.copy)))
        return text

    def _change_gpu(self, text: str | None) -> str | None:
        """Change uuids and PCI addresses; those of all reports of a node change alike."""
        if text is None or not self.copy:
            return text
        text = re.sub(r"\b0000:00:(?=[0-9a-f]{2}\.0)", f"{self.node:04x}:00:", text)
        if "Uuid" not in text and not re.fullmatch(r"[0-9a-f]{8}-[0-9a-f-]{27}", text):
            return text
        return re.sub(
            r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
            lambda m: str(uuid.uuid5(uuid.UUID(m[0]), str(self.node))),
            text,
        )

    def _change_payload(self, text: str) -> str:
        """Change peers to ranks of the whole job."""
        return re.sub(r'(?<="Peer rank":)\d+', lambda m: str(int(m[0]) + self.first_rank), text)


def _read_host(report: Path) -> str:
    with closing(sqlite3.connect(f"file:{report}?mode=ro", uri=True)) as database:
        (host,) = database.execute("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'").fetchone()
    return str(host)


def _has_events(table: str) -> bool:
    return table.isupper() and not table.startswith(("TARGET_", "META_", "ENUM_", "NVTX_PAYLOAD", "PROCESSES"))


def _list_tables(database: sqlite3.Connection) -> list[str]:
    return [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def _list_columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
