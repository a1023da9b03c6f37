"""Reads logs of NVIDIA's NCCL Inspector: names and ranks of communicators, and sizes of operations.

The Inspector is a profiler plugin of NCCL (plugins/profiler/inspector in its repository). It writes a JSON object for
each operation, and its README and its source document them: `header.id` is the id of the communicator, as in NCCL's
payloads. Logs lack operations: small ones, and those that did not fit into a buffer. So what a log lacks means nothing.
The times in a log are not read, because they include waiting.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pj

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.sources.nvtx.names import ADVANCED_CALLS
from nsys2prv_ng.text.formatting import count_noun
from nsys2prv_ng.text.names import quote_name

_ENDINGS = (".log", ".log.gz", ".jsonl", ".jsonl.gz")
"""Endings of logs, as in NVIDIA's exporter. The Inspector itself writes HOST-pidPID.log."""
_KNOWN_VERSION = re.compile(r"v[45]\.[0-9]{1,3}")
_ID = re.compile(r"0x[0-9a-fA-F]{1,16}")
_NO_NAME = (None, "", "unknown")
"""Names of a communicator that the program did not name."""
_SCHEMA = pa.schema(
    {
        "header": pa.struct(
            {"id": pa.string(), "comm_name": pa.string(), "rank": pa.int64(), "n_ranks": pa.int64()}.items()
        ),
        "metadata": pa.struct(
            {"inspector_output_format_version": pa.string(), "hostname": pa.string(), "pid": pa.int64()}.items()
        ),
        "coll_perf": pa.struct({"coll": pa.string(), "coll_msg_size_bytes": pa.int64()}.items()),
        "p2p_perf": pa.struct({"p2p": pa.string(), "p2p_msg_size_bytes": pa.int64()}.items()),
    }
)
_SHOWN = 3
"""Most communicators and calls in a warning."""


@dataclass
class LoggedCommunicator:
    """What logs say of a communicator."""

    names: set[str] = field(default_factory=set)
    sizes: set[int] = field(default_factory=set)
    """Numbers of its ranks: one, unless the logs are of different runs."""
    ranks: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    """Ranks of each process, by its host and pid."""
    bytes: dict[str, set[int]] = field(default_factory=dict)
    """Sizes of the operations of each call, by NCCL's name for it."""

    @property
    def name(self) -> str:
        """The only name; empty if there is none or more than one."""
        return next(iter(self.names)) if len(self.names) == 1 else ""

    @property
    def size(self) -> int:
        """The only number of ranks, else 0."""
        return next(iter(self.sizes)) if len(self.sizes) == 1 else 0

    def find_rank(self, host: str, pid: int) -> int | None:
        """Return the only rank of a process."""
        ranks = self.ranks.get((host, pid), set())
        return next(iter(ranks)) if len(ranks) == 1 else None


@dataclass
class InspectorLogs:
    """The logs of a folder: communicators by their ids as 16 hexadecimal digits, and what in them is not understood."""

    folder: Path
    communicators: dict[str, LoggedCommunicator] = field(default_factory=dict)
    surprises: list[str] = field(default_factory=list)

    def check(self, sizes: Mapping[str, int], used: Iterable[tuple[str, str, int]]) -> list[str]:
        """Return one warning if the logs do not fit the reports.

        `sizes`: the number of ranks of each communicator in the reports, 0 if it is unknown; `used`: distinct
        communicators, calls and sizes (bytes) in the reports.
        """
        doubts = [*self.surprises]
        shared = sorted(sizes.keys() & self.communicators.keys())
        if self.communicators and sizes and not shared:
            doubts.append("they have no communicator of the reports")
        doubts += _list("numbers of ranks", [f"{c}" for c in shared if self._differs(c, sizes[c])])
        reported: dict[tuple[str, str], set[int]] = {}
        for communicator, call, size in used:
            reported.setdefault((communicator, call), set()).add(size)
        unlike = []
        for (communicator, call), found in sorted(reported.items()):
            logged = self.communicators.get(communicator, LoggedCommunicator()).bytes.get(call, set())
            if logged and any(size >= min(logged) for size in found) and found.isdisjoint(logged):
                unlike.append(f"{call} on {communicator}")
        doubts += _list("sizes", unlike)
        text = f"NCCL Inspector logs in {self.folder} do not fit the reports: {'; '.join(doubts)}"
        return [text] if doubts else []

    def _differs(self, communicator: str, size: int) -> bool:
        logged = self.communicators[communicator].sizes
        return len(logged) > 1 or (size > 0 and size not in logged)


def _list(what: str, where: list[str]) -> list[str]:
    """Return a text about communicators or calls where something differs; [] if there are none."""
    more = f" and {len(where) - _SHOWN:,} more" if len(where) > _SHOWN else ""
    return [f"other {what} for {', '.join(where[:_SHOWN])}{more}"] if where else []


def list_logs(folder: Path) -> list[Path]:
    """Return the logs in a folder and the folders in it. Raises UsageError if there are none."""
    logs = sorted(path for path in folder.rglob("*") if path.name.endswith(_ENDINGS) and path.is_file())
    if not logs:
        endings = ", ".join(f"*{ending}" for ending in _ENDINGS)
        raise UsageError(f"{folder} holds no logs of the NCCL Inspector ({endings})", parameter="nccl_inspector")
    return logs


def read_inspector_logs(folder: Path) -> InspectorLogs:
    """Read all logs of a folder. Raises UsageError if there are none."""
    logs = InspectorLogs(folder)
    damaged, versions, strange, count = 0, set(), 0, 0
    paths = list_logs(folder)
    for path in paths:
        table, whole = _read_log(path)
        damaged += not whole
        for row in _list_distinct(table):
            count += 1
            version, communicator = str(row["version"]), str(row["id"])
            if not _KNOWN_VERSION.fullmatch(version):
                versions.add(version)
            if _ID.fullmatch(communicator):
                key = f"{int(communicator, 16):016x}"
                _add(logs.communicators.setdefault(key, LoggedCommunicator()), row)
            else:
                strange += 1
    if damaged:
        logs.surprises.append(f"{count_noun(damaged, 'file')} with damaged records")
    if versions:
        logs.surprises.append(f"unknown format {', '.join(map(quote_name, sorted(versions)[:_SHOWN]))}")
    if strange:
        logs.surprises.append("records without the id of a communicator")
    if not count:
        logs.surprises.append("they have no records")
    return logs


def _add(communicator: LoggedCommunicator, row: dict[str, object]) -> None:
    """Add one distinct record to what logs say of its communicator."""
    if row["comm_name"] not in _NO_NAME:
        communicator.names.add(str(row["comm_name"]))
    if isinstance(row["n_ranks"], int) and row["n_ranks"] > 0:
        communicator.sizes.add(row["n_ranks"])
    if isinstance(row["rank"], int) and row["rank"] >= 0 and isinstance(row["pid"], int):
        communicator.ranks.setdefault((str(row["host"]), row["pid"]), set()).add(row["rank"])
    for call, size in ((row["coll"], row["coll_size"]), (row["p2p"], row["p2p_size"])):
        if isinstance(size, int) and call in ADVANCED_CALLS:
            communicator.bytes.setdefault(ADVANCED_CALLS[str(call)], set()).add(size)


def _read_log(path: Path) -> tuple[pa.Table, bool]:
    """Return (the records of a log, whether all could be read). A job that ends early leaves a cut line."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
    except (OSError, EOFError, zlib.error):
        return _SCHEMA.empty_table(), False
    for part in (data, data[: data.rfind(b"\n") + 1]):
        if not part.strip():
            continue
        options = pj.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore", newlines_in_values=True)
        try:
            return pj.read_json(io.BytesIO(part), parse_options=options), part is data
        except (pa.ArrowException, ValueError):
            pass
    return _SCHEMA.empty_table(), not data.strip()


def _list_distinct(table: pa.Table) -> list[dict[str, object]]:
    """Return the distinct records, of the fields that count."""
    if not table.num_rows:
        return []
    flat = table.flatten()
    names = {
        "header.id": "id",
        "header.comm_name": "comm_name",
        "header.rank": "rank",
        "header.n_ranks": "n_ranks",
        "metadata.inspector_output_format_version": "version",
        "metadata.hostname": "host",
        "metadata.pid": "pid",
        "coll_perf.coll": "coll",
        "coll_perf.coll_msg_size_bytes": "coll_size",
        "p2p_perf.p2p": "p2p",
        "p2p_perf.p2p_msg_size_bytes": "p2p_size",
    }
    chosen = flat.select(list(names)).rename_columns(list(names.values()))
    rows: list[dict[str, object]] = chosen.group_by(chosen.column_names).aggregate([]).to_pylist()
    return rows
