"""Rows a second from three large tables: pandas.read_sql over SQLAlchemy, sqlite3 into numpy, the pages of the file.

python benchmarks/read_sqlite.py [REPORT.sqlite[.xz] [ROUNDS]]

All read the same integer columns, one core each, warm; rates are by CPU time. The ways take turns, and the ratios are
those of one round, so that other work of the machine touches all of them. The table shows the medians, and the least
and largest ratio.
"""

from __future__ import annotations

import lzma
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import sqlalchemy as sa

from nsys2prv_ng.report.database import Database, Table
from nsys2prv_ng.report.pages import PageReader
from nsys2prv_ng.report.sqlite_file import SqliteFile

REPORT = Path(__file__).parents[1] / "../shared/reports/bench/ddplong-2x2.rank0.sqlite.xz"
TABLES = {
    "GPU_METRICS": ("timestamp", "typeId", "metricId", "value"),
    "OSRT_API": ("start", "end", "globalTid", "nameId"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "globalTid", "correlationId", "nameId"),
}
Way = Callable[[str, tuple[str, ...]], list[np.ndarray]]


def main() -> None:
    report = Path(sys.argv[1]) if len(sys.argv) > 1 else REPORT
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        path = unpack(report, Path(folder))
        ways = {
            "pandas": make_pandas_reader(path),
            "sqlite3": make_database_reader(path, pages=False),
            "pages": make_database_reader(path),
        }
        print(f"{'Mrow/s':28}{'rows':>9}" + "".join(f"{way:>9}" for way in ways), end="")
        print(f"{'to pandas':>20}{'to sqlite3':>20}")
        for table, columns in TABLES.items():
            print(f"{table:28}{measure(ways, table, columns, rounds)}")


def unpack(report: Path, folder: Path) -> Path:
    """Return the report, decompressed into the folder if it is an .xz."""
    if report.suffix != ".xz":
        return report
    path = folder / report.stem
    with lzma.open(report) as packed, path.open("wb") as file:
        shutil.copyfileobj(packed, file, 1 << 20)
    return path


def make_pandas_reader(path: Path) -> Way:
    """Return a function that reads columns of a table by pandas.read_sql."""
    engine = sa.create_engine(f"sqlite:///{path}")

    def read(table: str, columns: tuple[str, ...]) -> list[np.ndarray]:
        names = ", ".join(f'"{name}"' for name in columns)
        with engine.connect() as connection:
            frame = pd.read_sql(sa.text(f'SELECT {names} FROM "{table}"'), connection)
        return [frame[name].to_numpy() for name in columns]

    return read


def make_database_reader(path: Path, *, pages: bool = True) -> Way:
    """Return a function that reads columns of a table as this program does; without `pages` through sqlite3 alone."""
    database = Database(path)
    if not pages:
        assert isinstance(database._table_reader, SqliteFile)
        database._table_reader._pages = PageReader(path, small=sys.maxsize)

    def read(table: str, columns: tuple[str, ...]) -> list[np.ndarray]:
        numbers = database.read(Table(table, columns), "").numbers
        return [numbers[name] for name in columns]

    return read


def measure(ways: dict[str, Way], table: str, columns: tuple[str, ...], rounds: int) -> str:
    """Return rows, rates and ratios of a table. A first round is not counted; it compares what the ways read."""
    first = [read(table, columns) for read in ways.values()]
    assert all(np.array_equal(first[0], other) for other in first[1:])
    rows = first[0][0].size
    del first
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, read in ways.items():
            seconds[way].append(time_reading(read, table, columns))
    text = f"{rows:9}" + "".join(f"{rows / statistics.median(taken) / 1e6:9.2f}" for taken in seconds.values())
    for other in ("pandas", "sqlite3"):
        ratios = [a / b for a, b in zip(seconds[other], seconds["pages"], strict=True)]
        text += f"{f'{statistics.median(ratios):.0f} ({min(ratios):.0f}-{max(ratios):.0f})':>20}"
    return text


def time_reading(read: Way, table: str, columns: tuple[str, ...]) -> float:
    """Return the CPU seconds that reading takes."""
    start = time.process_time()
    read(table, columns)
    return time.process_time() - start


if __name__ == "__main__":
    main()
