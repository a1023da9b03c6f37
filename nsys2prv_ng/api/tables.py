"""The calls that give out the events of a job as tables: `open` for DataFrames, `export` for files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from nsys2prv_ng.api import arguments
from nsys2prv_ng.api.arguments import Reports
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options import calls
from nsys2prv_ng.options.kinds import GPU_TIME, AnyPath, parse_job_time, parse_names, parse_numbers, parse_path, read
from nsys2prv_ng.runtime.files import resolve_links

if TYPE_CHECKING:
    import pandas as pd

    from nsys2prv_ng.tables.context import JobTables
    from nsys2prv_ng.tables.export import ExportedTable

_OF_RANK = re.compile(r"rank=-?\d+/part-\d+\.(?:parquet|csv)")
"""A file of an export, in the folder of its table."""

# Numba, pyarrow and pandas are imported where they are used, so that the command line's --help answers at once.


class OpenJob:
    """The reports of a job, open to be asked for tables: use it in a `with` statement, or close it.

    Every table is an attribute, which is read once: `job.kernels`. `job.table` reads some of its columns, ranks or
    time. Both are DataFrames of pandas, sorted by time; their `attrs` say what the columns mean, and what was dropped
    and why. DataFrames stay when the job is closed.
    """

    def __init__(self, tables: JobTables, close: Callable[[], None]) -> None:
        self._tables: JobTables | None = tables
        self._close = close
        self._frames: dict[str, pd.DataFrame] = {}

    def __enter__(self) -> OpenJob:
        self._get_tables()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the job, and give back its memory."""
        self._tables, self._frames = None, {}
        self._close()

    def __getattr__(self, name: str) -> pd.DataFrame:
        if name.startswith("_"):
            raise AttributeError(name)
        from nsys2prv_ng.tables.frames import make_frame
        from nsys2prv_ng.tables.registry import find_table

        try:
            table = find_table(name)
        except UsageError as error:
            raise AttributeError(error.message) from None
        if name not in self._frames or self._tables is None:
            self._frames[name] = make_frame(self._get_tables(), table, table.columns)
        return self._frames[name]

    def __dir__(self) -> Iterable[str]:
        return sorted({*super().__dir__(), *self.tables})

    def table(
        self,
        name: str,
        *,
        columns: Iterable[str] | str | None = None,
        ranks: Iterable[int] | str | None = None,
        time: Any = None,
    ) -> pd.DataFrame:
        """Return a table by name; only these columns, ranks, and rows that touch a time (from, to) in ns.

        `columns`, `ranks` and `time` may also be texts, as on the command line: "name,start_ns", "0-3", "1s:2s". Raises
        UsageError for names that there are not, and for a closed job.
        """
        from nsys2prv_ng.job.open_job import find_gpu_time
        from nsys2prv_ng.tables.frames import make_frame
        from nsys2prv_ng.tables.registry import find_table

        tables, table = self._get_tables(), find_table(name)
        wanted = table.columns if columns is None else table.find_columns(read(parse_names, columns, "columns"))
        chosen = None if ranks is None else read(parse_numbers, ranks, "ranks")
        limits = (None, None) if time is None else read(parse_job_time, time, "time")
        if limits == GPU_TIME:
            limits = find_gpu_time(tables.job) or (None, None)
        return make_frame(tables, table, wanted, chosen, limits)

    @property
    def tables(self) -> list[str]:
        """Names of the tables."""
        from nsys2prv_ng.tables.registry import TABLES

        return list(TABLES)

    @property
    def clock(self) -> pd.DataFrame:
        """The clock of each node: what corrected it, and the bound of its error in us (with 95 % confidence).

        Its `attrs` say how clocks were aligned, and how many operations break causality before and after.
        """
        job = self._get_tables().job
        import pandas

        numbers = job.alignment.numbers
        frame = pandas.DataFrame([asdict(node) for node in numbers.nodes])
        frame.attrs = {key: value for key, value in asdict(numbers).items() if key != "nodes"}
        return frame

    @property
    def start_utc_ns(self) -> int:
        """UTC of time 0 (ns)."""
        return self._get_tables().job.start_utc

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the events doubtful, such as clocks or ranks without a report."""
        return self._get_tables().job.warnings

    def _get_tables(self) -> JobTables:
        """Return the tables. Raises UsageError if the job is closed."""
        if self._tables is None:
            raise UsageError("the job is closed; open it again, or keep the DataFrame")
        return self._tables


@arguments.takes(calls.JobOptions)
def open(reports: Reports, options: calls.JobOptions) -> OpenJob:
    """Open the reports of a job, to look at its events as pandas DataFrames.

    `reports`: as for translate, or a folder with reports, or a pattern. Close what this returns: `with open(...) as
    job`. A chosen time cuts the events, as in a trace.
    """
    given, stack = arguments.expand_reports(reports), ExitStack()
    return OpenJob(stack.enter_context(_open_tables(given, arguments.find_scratch(), options)), stack.close)


@arguments.takes_two(calls.ExportOptions)
def export(reports: Reports, folder: AnyPath, options: calls.ExportOptions) -> list[ExportedTable]:
    """Write the events of a job as tables: a dataset for each, with a file for each rank; return what was written.

    `reports`: as for open. `folder`: is made, or with `force` replaced if it is an export. After an error nothing is
    left under its name. A chosen time cuts the events, as in a trace.
    """
    from nsys2prv_ng.runtime.files import make_folder_atomically
    from nsys2prv_ng.tables.export import write_tables
    from nsys2prv_ng.tables.registry import TABLES, find_table

    given, into = arguments.expand_reports(reports), resolve_links(read(parse_path, folder, "folder"))
    chosen = list(map(find_table, dict.fromkeys(options.tables or TABLES)))
    _refuse_folder(into, TABLES, options)
    with (
        make_folder_atomically(into, replaces=options.force) as temporary,
        _open_tables(given, into.parent, options) as tables,
    ):
        written = write_tables(tables, chosen, temporary, options.format, options.display)
    for warning in tables.job.warnings:
        options.display.warn(warning)
    return written


def _refuse_folder(folder: Path, known: Mapping[str, object], options: calls.ExportOptions) -> None:
    """Raise UsageError for what cannot be replaced: a file, a folder of others, or an export without `force`."""
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise UsageError(f"{folder}: is a file; give a folder for the tables")
    within = [path.relative_to(folder).parts for path in folder.rglob("*") if not path.is_dir()]
    if not all(len(parts) == 3 and parts[0] in known and _OF_RANK.fullmatch("/".join(parts[1:])) for parts in within):
        raise UsageError(f"{folder}: has other files than tables; give a new folder")
    if within and not options.force:
        raise UsageError(f"{folder}: has tables already; choose another name, or replace them", see=("force",))


@contextmanager
def _open_tables(reports: Sequence[Path], folder: Path, options: calls.JobOptions) -> Iterator[JobTables]:
    """Yield what the tables of a job are read from. `folder`: takes what exceeds the memory, and what workers share."""
    from nsys2prv_ng.api.plans import choose_engine, make_read_options
    from nsys2prv_ng.job.open_job import open_job
    from nsys2prv_ng.runtime.precompile import FOR_TRANSLATE, compile_ahead
    from nsys2prv_ng.tables.context import JobTables

    made = make_read_options(options, cuts_steps=True)
    with (
        compile_ahead(FOR_TRANSLATE),
        choose_engine(options, made, folder) as read_options,
        open_job(reports, folder, read_options, options.display) as job,
    ):
        yield JobTables(job)
