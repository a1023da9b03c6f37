"""Ways in which reports get damaged, each by a seeded generator: tables, columns, values, times, ids, names, bytes."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.report.table_folders import KINDS, tables_of, write_folder

KEPT_ROWS = 1500
"""Rows of each table of a trimmed report."""

NAMES = (
    "",
    " ",
    "two\nlines",
    "\ttabs\t",
    "\r\n",
    "quotes ' \" ` \\",
    "<b>&amp;</b>",
    "NUL \x00 inside",
    "\x1b[31mred\x1b[0m",
    "".join(map(chr, range(1, 32))),
    "\x7f\x80\x9f\u2028\u2029\ufeff",
    "x" * 10_000,
    "\n" * 10_000,
    "kernel " * 3000 + "end",
    "\N{SPARKLES} \N{FAMILY} \U0001f468\u200d\U0001f4bb",
    "right \u202eto left",
    "%s %d %n {0} ${HOME}",
    "LEVEL THREAD SIZE 1",
    "EVENT_TYPE",
    "VALUES",
    "0 Idle",
    "-1",
    "12345678901234567890",
    "٣",
    "ncclCommInitRank",
    "MPI Rank 3",
    "MPI Rank 99999999999999999999",
    "MPI Rank " + "9" * 5000,
    "cudaProfilerStart",
)
"""Names that somebody has to format, match or count."""

INVALID_TEXTS = ("ff", "c328", "61ff62", "eda080", "f8888080", "00", "6100ff")
"""Bytes (hexadecimal) of texts that are not UTF-8, or have a NUL."""

NUMBERS = (
    0,
    1,
    -1,
    2,
    255,
    2**15,
    2**24,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32,
    2**53,
    2**62,
    -(2**62),
    2**63 - 1,
    -(2**63),
)
OTHER_VALUES = (
    "NULL",
    "0.5",
    "-1e18",
    "1e300",
    "9e999",
    "-9e999",
    "x'00ff'",
    "x''",
    "''",
    "'abc'",
    "'12'",
    "'{}'",
    "'0x10'",
)
"""Values, as SQL has them, of other types than a column declares."""
JSONS = (
    "{}",
    "[]",
    "[" * 2000,
    '{"NCCL communicator ID": 1, "Message size [bytes]": 8, "Reduction operation": "\\ud800"}',
    '{"NCCL communicator ID": 1, "No. of ranks": 4611686018427387904, "Rank": 3, "No. of devices": 1099511627776}',
    '{"NCCL communicator ID": 1, "Peer rank": 4611686018427387904, "Root": 99999999999}',
    '{"Rank": 1e999, "No. of ranks": 2}',
    '{"No. of ranks": NaN}',
    '{"Communicator ID": -1, "No. of ranks": 99999999999999999999999, "Rank": "0"}',
    '{"Rank": 99999999999999999999999, "No. of ranks": 4}',
    '{"Message size [bytes]": "much"}',
)

SECOND = 10**9
YEAR = 365 * 86400 * SECOND


class Report:
    """An export to SQLite that is being damaged: its connection, and what is in it."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.rng = rng
        self.sql = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "writable_schema = ON"):
            self.sql.execute(f"PRAGMA {pragma}")
        # Values are to be NULL that the schema does not allow to be.
        self.sql.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') WHERE type = 'table'")
        self.sql.execute("PRAGMA writable_schema = RESET")

    def tables(self) -> list[str]:
        """Names of tables that have rows, but for those that nobody reads."""
        found = [name for (name,) in self.sql.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
        return [
            name
            for name in found
            if not name.startswith(("ENUM_", "sqlite_")) and self.sql.execute(f'SELECT 1 FROM "{name}"').fetchone()
        ]

    def table(self, *having: str) -> str:
        """One of the tables (that have all of some columns), or the empty string."""
        tables = [name for name in self.tables() if set(having) <= set(self.columns(name))]
        return self.rng.choice(tables) if tables else ""

    def columns(self, table: str) -> list[str]:
        return [name for (name,) in self.sql.execute("SELECT name FROM pragma_table_info(?)", (table,))]

    def some_rows(self) -> str:
        """A condition on rows: all of them, some, one."""
        factor, offset, every = (
            self.rng.randrange(1, 1000, 2),
            self.rng.randrange(100),
            self.rng.choice((2, 10, 100)),
        )
        some = f"(rowid * {factor} + {offset}) % {every} = 0"
        one = f"rowid = 1 + {self.rng.randrange(1000)}"
        return self.rng.choice(("1", some, one, "rowid = 1"))

    def rewrite(self, table: str, select: str) -> None:
        """A table of other rows under the same name. It has no constraints and no declared types."""
        self.sql.execute(f'CREATE TABLE "rewritten" AS {select}')
        self.sql.execute(f'DROP TABLE "{table}"')
        self.sql.execute(f'ALTER TABLE "rewritten" RENAME TO "{table}"')


def text_of(value: str) -> str:
    """A text as SQL has it; by its bytes, since a NUL would end it."""
    return f"CAST(x'{value.encode('utf-8', 'surrogatepass').hex()}' AS TEXT)"


# ---- tables and columns ----------------------------------------------------------------------------------------------


def drop_table(report: Report) -> str:
    table = report.table()
    report.sql.execute(f'DROP TABLE "{table}"')
    return table


def empty_table(report: Report) -> str:
    table = report.table()
    report.sql.execute(f'DELETE FROM "{table}"')
    return table


def one_row(report: Report) -> str:
    table = report.table()
    row = report.rng.randrange(50)
    report.rewrite(table, f'SELECT * FROM "{table}" LIMIT 1 OFFSET (SELECT {row} % count(*) FROM "{table}")')
    return table


def drop_column(report: Report) -> str:
    table = report.table()
    columns = report.columns(table)
    left = columns[:]
    left.remove(report.rng.choice(columns))
    if left:
        report.rewrite(table, f"SELECT {', '.join(map(quoted, left))} FROM {quoted(table)}")
    return f"{table}, left {left}"


def swap_columns(report: Report) -> str:
    table = report.table()
    columns = report.columns(table)
    one, other = report.rng.choice(columns), report.rng.choice(columns)
    with suppress(sqlite3.IntegrityError):
        report.sql.execute(f'UPDATE "{table}" SET "{one}" = "{other}", "{other}" = "{one}" WHERE {report.some_rows()}')
    return f"{table}.{one} and {other}"


def duplicate_rows(report: Report) -> str:
    table = report.table()
    times = report.rng.choice((2, 2, 3, 20))
    copies = f"(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {times}) SELECT i FROM n)"
    columns = ", ".join(map(quoted, report.columns(table)))
    limit = 10_000 if times < 20 else 2000
    report.rewrite(table, f"SELECT {columns} FROM {quoted(table)}, {copies} LIMIT {limit}")
    return f"{table} {times} times"


def shuffle_rows(report: Report) -> str:
    table = report.table()
    factor = report.rng.randrange(1, 10**6, 2)
    report.rewrite(table, f'SELECT * FROM "{table}" ORDER BY rowid * {factor} % 65537')
    return table


def without_rowid(report: Report) -> str:
    """A table, or a view, of another kind than nsys writes."""
    table = report.table()
    columns = ", ".join(map(quoted, report.columns(table)))
    kind = report.rng.choice(("WITHOUT ROWID", "VIEW", "GENERATED", "UPPER"))
    rows = f'SELECT * FROM "{table}"'
    if kind == "WITHOUT ROWID":
        report.sql.execute(f"CREATE TABLE other ({columns}, PRIMARY KEY ({columns})) WITHOUT ROWID")
        with suppress(sqlite3.IntegrityError):
            report.sql.execute(f"INSERT OR IGNORE INTO other {rows}")
    elif kind == "VIEW":
        report.rewrite(table, rows)
        report.sql.execute(f'ALTER TABLE "{table}" RENAME TO "{table}_2"')
        report.sql.execute(f'CREATE VIEW "{table}" AS SELECT * FROM "{table}_2"')
        return f"{table}, {kind}"
    elif kind == "GENERATED":
        first = quoted(report.columns(table)[0])
        report.sql.execute(f"CREATE TABLE other ({columns}, extra GENERATED ALWAYS AS ({first}) VIRTUAL)")
        report.sql.execute(f"INSERT INTO other ({columns}) {rows}")
    else:
        report.sql.execute(f"CREATE TABLE other ({columns.upper()})")
        report.sql.execute(f"INSERT INTO other {rows}")
    report.sql.execute(f'DROP TABLE "{table}"')
    report.sql.execute(f'ALTER TABLE other RENAME TO "{table}"')
    return f"{table}, {kind}"


# ---- values ----------------------------------------------------------------------------------------------------------


def other_values(report: Report) -> str:
    """Values of another type, or numbers that nobody expects."""
    table = report.table()
    column = report.rng.choice(report.columns(table))
    value = report.rng.choice((*OTHER_VALUES, *map(str, NUMBERS)))
    _set(report, table, column, value, report.some_rows())
    return f"{table}.{column} = {value}"


def mixed_values(report: Report) -> str:
    """Another value in each row of some columns of a table: small numbers, any numbers, or other types among them."""
    table = report.table()
    columns = report.columns(table)
    where = report.some_rows()
    done = []
    for column in report.rng.sample(columns, min(report.rng.choice((1, 1, 3)), len(columns))):
        name = quoted(column)
        among = [*report.rng.sample(OTHER_VALUES, 2), *map(str, report.rng.sample(NUMBERS, 3)), name, name]
        cases = " ".join(f"WHEN {i} THEN {value}" for i, value in enumerate(among))
        value = report.rng.choice(
            (
                f"rowid % {report.rng.choice((3, 10, 100))}",
                f"(rowid * 2654435761 % 4294967296) << (rowid % {report.rng.choice((1, 32))})",
                f"CASE rowid % {len(among)} {cases} END",
                f"{name} + rowid % 3 - 1",
            )
        )
        _set(report, table, column, value, where)
        done.append(f"{column} = {value}")
    return f"{table}: {'; '.join(done)} where {where}"


def other_values_of_metadata(report: Report) -> str:
    """The same in the small tables that everything else hangs on."""
    tables = [
        name
        for name in report.tables()
        if name.startswith(("TARGET_INFO", "META_DATA", "MPI_RANKS", "MPI_COMM", "ThreadN", "PROCESSES", "ANALYSIS"))
        or name.startswith(("NVTX_PAYLOAD", "GENERIC_EVENT"))
    ]
    table = report.rng.choice(tables)
    column = report.rng.choice(report.columns(table))
    value = report.rng.choice((*OTHER_VALUES, *map(str, NUMBERS), *map(text_of, NAMES)))
    where = report.rng.choice(("1", f"rowid % {report.rng.choice((2, 5))} = 0"))
    _set(report, table, column, value, where)
    return f"{table}.{column} = {value[:60]} where {where}"


def one_pair(report: Report) -> str:
    """One of the values of the tables of names and values, by its name."""
    table = report.rng.choice(
        [name for name in report.tables() if {"name", "value"} <= set(report.columns(name))] or [""]
    )
    known = [
        "EXPORT_SCHEMA_VERSION",
        "EXPORT_PARAM_TIME_NORMALIZE",
        "EXPORT_PARAM_TIME_SHIFT",
        "Hostname",
        "DeviceEnvironment",
        "PROCESS_0:ENVIRONMENT_VARIABLE",
    ]
    if not table:
        return "none"
    name = report.rng.choice(known)
    variable = report.rng.choice(("RANK", "SLURM_PROCID", "WORLD_SIZE", "SLURM_NTASKS", "NSYS_HW_ID", "SLURM_NODEID"))
    number = report.rng.choice((*map(str, NUMBERS), "9" * 30, "9" * 5000, "x", "", "٣", "true"))
    text = number if name.startswith("EXPORT") else f"{variable}={number}"
    text = report.rng.choice((text, text, report.rng.choice(NAMES)))
    report.sql.execute(f'DELETE FROM "{table}" WHERE name = ?', (name,))
    report.sql.execute(f'INSERT INTO "{table}" (name, value) VALUES (?, {text_of(text)})', (name,))
    return f"{table} {name} = {text[:60]!r}"


def _set(report: Report, table: str, column: str, value: str, where: str) -> None:
    report.sql.execute(f"UPDATE OR IGNORE {quoted(table)} SET {quoted(column)} = {value} WHERE {where}")


def other_ids(report: Report) -> str:
    """Ids that refer to nothing, or to something else, or all to the same."""
    tables = {
        name: [c for c in report.columns(name) if c.lower().endswith(("id", "tid", "pid"))] for name in report.tables()
    }
    table = report.rng.choice([name for name, columns in tables.items() if columns])
    column = report.rng.choice(tables[table])
    name = quoted(column)
    value = report.rng.choice(
        (
            f"{name} + 1",
            f"{name} + 1000000",
            f"-{name}",
            f"{name} % 3",
            f"{name} << 24",
            f"{name} & 16777215",
            f"(SELECT max({name}) FROM {quoted(table)})",
            "rowid",
            "-rowid",
            "rowid << 24",
        )
    )
    _set(report, table, column, value, report.some_rows())
    return f"{table}.{column} = {value}"


# ---- times -----------------------------------------------------------------------------------------------------------


def times(report: Report) -> str:
    """Times that are huge, negative, backward, equal, far away."""
    column = report.rng.choice(("start", "end", "timestamp", "start"))
    table = report.table(column)
    if not table:
        return "none"
    name = quoted(column)
    value = report.rng.choice(
        (
            "0",
            "1",
            "-1",
            "5000000000",
            f"{name} + {YEAR}",
            f"{name} - {YEAR}",
            f"{name} + {50 * 86400 * SECOND}",
            f"{name} * 1000",
            f"-{name}",
            f"{name} / 1000000 * 1000000",
            f"{name} - 100000",
            f"{name} + 100000",
            f"{name} + (rowid % 7 - 3) * 1000000",
            str(2**53),
            str(2**62),
            str(2**63 - 1),
            str(2**63 - 2),
            str(-(2**63) + 1),
            str(-(2**62)),
        )
    )
    where = report.some_rows()
    columns = [column] if report.rng.random() < 0.5 else [c for c in ("start", "end") if c in report.columns(table)]
    for each in columns or [column]:
        _set(report, table, each, value.replace(name, quoted(each)), where)
    return f"{table}.{columns} = {value} where {where}"


def swap_begin_and_end(report: Report) -> str:
    table = report.table("start", "end")
    if table:
        report.sql.execute(f'UPDATE "{table}" SET "start" = "end", "end" = "start" WHERE {report.some_rows()}')
    return table


def overlapping(report: Report) -> str:
    """Intervals that neither nest nor follow each other."""
    table = report.table("start", "end")
    if table:
        report.sql.execute(f'UPDATE "{table}" SET "end" = "end" + ("end" - "start") * (rowid % 50) + rowid % 5 * 1000')
    return table


def one_time(report: Report) -> str:
    """Thousands of rows with one time."""
    column = report.rng.choice(("start", "timestamp"))
    table = report.table(column)
    if not table:
        return "none"
    columns = report.columns(table)
    kept = ", ".join(map(quoted, columns))
    copies = "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) SELECT i FROM n)"
    report.rewrite(table, f"SELECT {kept} FROM {quoted(table)}, {copies} LIMIT 3000")
    time = f'(SELECT min("{column}") FROM "{table}")'
    if report.rng.random() < 0.5 and "end" in columns:
        report.sql.execute(f'UPDATE "{table}" SET "end" = {time}')
    report.sql.execute(f'UPDATE "{table}" SET "{column}" = {time}')
    return f"{table}.{column}"


def clock(report: Report) -> str:
    """The start of the session: what places a report among others."""
    table = "TARGET_INFO_SESSION_START_TIME"
    if table not in report.tables():
        return "none"
    column = report.rng.choice(("utcEpochNs", "systemClockNs", "utcTime"))
    if column not in report.columns(table):
        return "none"
    value = report.rng.choice(
        (*map(str, NUMBERS), f"{column} + {YEAR}", f"{column} + {200 * SECOND}", "NULL", "9e999", "'x'")
    )
    _set(report, table, column, value, "1")
    return f"{column} = {value}"


# ---- names -----------------------------------------------------------------------------------------------------------


def names(report: Report) -> str:
    """Names that are hard to write in one line."""
    texts = {
        "StringIds": ["value"],
        "NVTX_EVENTS": ["text"],
        "TARGET_INFO_GPU": ["name", "uuid", "busLocation"],
        "TARGET_INFO_GPU_METRICS": ["metricName"],
        "PROCESSES": ["name"],
        "TARGET_INFO_SYSTEM_ENV": ["value"],
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": ["name", "description"],
        "NVTX_PAYLOAD_SCHEMAS": ["name"],
    }
    there = [(t, c) for t, columns in texts.items() for c in columns if t in report.tables() and c in report.columns(t)]
    if not there:
        return "none"
    table, column = report.rng.choice(there[:1] * 4 + there)
    texts_of = [text_of(name) for name in report.rng.sample(NAMES, 5)]
    texts_of += [f"CAST(x'{code}' AS TEXT)" for code in report.rng.sample(INVALID_TEXTS, 2)]
    for i, text in enumerate(texts_of):
        _set(report, table, column, text, f"rowid % {report.rng.choice((7, 20))} = {i}")
    return f"{table}.{column}"


def name_of_one(report: Report) -> str:
    """All names are one, or differ in their last character only."""
    if "value" not in report.columns("StringIds"):
        return "none"
    value = report.rng.choice((text_of(report.rng.choice(NAMES)), f"{text_of('y' * 9000)} || id", "value || char(10)"))
    _set(report, "StringIds", "value", value, "1")
    return value[:60]


def payloads(report: Report) -> str:
    """NVTX payloads: JSON, and bytes after layouts that may be damaged as well."""
    if "NVTX_EVENTS" not in report.tables():
        return "none"
    column = report.rng.choice([c for c in report.columns("NVTX_EVENTS") if c in ("jsonText", "binaryData")] or [""])
    if not column:
        return "none"
    value = text_of(report.rng.choice(JSONS))
    if column == "binaryData":
        data = bytes(report.rng.randrange(256) for _ in range(report.rng.choice((0, 1, 7, 40, 100))))
        value = report.rng.choice((f"x'{data.hex()}'", f"substr(binaryData, 1, {report.rng.randrange(60)})"))
    _set(report, "NVTX_EVENTS", column, value, f"{column} IS NOT NULL AND {report.some_rows()}")
    return f"{column} = {value[:60]}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


OF_TABLES: tuple[Callable[[Report], str], ...] = (
    drop_table,
    empty_table,
    one_row,
    drop_column,
    swap_columns,
    duplicate_rows,
    shuffle_rows,
    without_rowid,
    other_values,
    other_values,
    mixed_values,
    mixed_values,
    mixed_values,
    other_values_of_metadata,
    other_values_of_metadata,
    one_pair,
    other_ids,
    other_ids,
    times,
    times,
    times,
    swap_begin_and_end,
    overlapping,
    one_time,
    clock,
    names,
    names,
    name_of_one,
    payloads,
)


# ---- bytes -----------------------------------------------------------------------------------------------------------


def damage_bytes(path: Path, rng: random.Random) -> str:
    """Damage as of a bad disk or a copy that was cut."""
    data = bytearray(path.read_bytes())
    kind = rng.choice(("flip", "flip", "flip many", "cut", "zeros", "swap", "noise", "head", "grow", "cells"))
    if len(data) < 200:
        kind = "cut"
    page = 4096
    pages = max(len(data) // page, 1)
    if kind == "flip":
        for _ in range(rng.choice((1, 3, 20))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "flip many":
        for _ in range(len(data) // 500):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == "cut":
        del data[rng.randrange(len(data) + 1) :]
    elif kind == "grow":
        data += bytes(rng.randrange(10**5))
    elif kind == "head":
        data[rng.randrange(100)] = rng.randrange(256)
    elif kind == "cells":  # the counts and pointers that pages begin with
        for _ in range(rng.choice((1, 5, 30))):
            at = rng.randrange(pages) * page + rng.randrange(20)
            data[at % len(data)] = rng.choice((0, 1, 2, 5, 10, 13, 127, 255))
    else:
        first, second = (rng.randrange(pages) * page for _ in range(2))
        part = data[second : second + page]
        if kind == "zeros":
            part = bytearray(page)
        elif kind == "noise":
            part = bytearray(rng.randrange(256) for _ in range(page))
        data[first : first + len(part)] = part
    path.write_bytes(data)
    return f"{kind} in {path.name}"


# ---- whole reports ---------------------------------------------------------------------------------------------------


def trimmed(report: Path, copy: Path) -> None:
    """A copy of a report with the first rows of each of its tables."""
    shutil.copyfile(report, copy)
    copy.chmod(0o600)
    with closing(sqlite3.connect(copy, isolation_level=None)) as sql:
        sql.execute("PRAGMA journal_mode = OFF")
        for (table,) in sql.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if table != "StringIds":
                sql.execute(f'DELETE FROM "{table}" WHERE rowid > {KEPT_ROWS}')
        sql.execute("VACUUM")


def damaged_copy(report: Path, folder: Path, rng: random.Random) -> tuple[Path, list[str]]:
    """A damaged copy of a report, an SQLite file or a folder of tables; and what was done to it."""
    copy = folder / report.name
    shutil.copyfile(report, copy)
    done = []
    kind = rng.choice(("tables", "tables", "tables", "tables", "bytes", "both"))
    if kind != "bytes":
        damaged = Report(copy, rng)
        with closing(damaged.sql):
            for _ in range(rng.choice((1, 1, 2, 3, 5))):
                way = rng.choice(OF_TABLES)
                with suppress(sqlite3.Error):  # not after what was done before, as to a view
                    done.append(f"{way.__name__}: {way(damaged)}")
    as_folder = rng.random() < 0.12
    if as_folder:
        copy = _folder(copy, rng, done)
    if kind != "tables":
        file = rng.choice(sorted(copy.iterdir())) if copy.is_dir() else copy
        for _ in range(rng.choice((1, 1, 3))):
            done.append(damage_bytes(file, rng))
    return copy, done


def _folder(report: Path, rng: random.Random, done: list[str]) -> Path:
    """The report as a folder of tables, some of which have other types."""
    kind = rng.choice(KINDS)
    _make_uniform(report)
    try:
        tables = {name: table for name, table in tables_of(report).items() if not name.startswith("ENUM_")}
    except (sqlite3.Error, ValueError):  # tables without a rowid, with generated columns
        return report
    for name in rng.sample(sorted(tables), min(rng.choice((0, 1, 3)), len(tables))):
        table = tables[name]
        if not table.num_columns:
            continue
        i = rng.randrange(table.num_columns)
        values = table.column(i).combine_chunks()
        to = rng.choice(OTHER_TYPES)
        with suppress(pa.ArrowException, ValueError, OverflowError):
            values = values.cast(to, safe=False) if to is not None else pa.array([[v] for v in range(len(values))])
            tables[name] = table.set_column(i, table.column_names[i], values)
            done.append(f"{name}.{table.column_names[i]} is {to}")
    folder = write_folder(report.with_name(report.stem + ("_pqtdir" if kind == "parquet" else "_arwdir")), {}, kind)
    for name, table in tables.items():
        with suppress(pa.ArrowException, OSError):  # types that Parquet does not have
            _write(table, folder, name, kind)
    report.unlink()
    done.append(kind)
    if rng.random() < 0.2:
        files = sorted(folder.iterdir())
        one, other = rng.choice(files), rng.choice(files)
        shutil.copyfile(one, other) if one != other else one.unlink()
        done.append(f"{one.name} is {other.name}")
    return folder


def _make_uniform(report: Path) -> None:
    """Values that are not of the type of their column become NULL: files of tables have columns of one type."""
    with closing(sqlite3.connect(report, isolation_level=None)) as sql:
        sql.execute("PRAGMA journal_mode = OFF")
        columns = sql.execute(
            "SELECT t.name, c.name, lower(c.type) FROM sqlite_master t, pragma_table_info(t.name) c"
            " WHERE t.type = 'table' AND t.name NOT LIKE 'ENUM_%'"
        ).fetchall()
        for table, column, kind in columns:
            table, column = quoted(table), quoted(column)
            if kind not in ("integer", "text", "real", "blob"):
                kinds = f"SELECT typeof({column}) FROM {table} WHERE {column} NOTNULL GROUP BY 1 ORDER BY count(*) DESC"
                kind = next(iter(sql.execute(kinds)), ("integer",))[0]
            sql.execute(f"UPDATE OR IGNORE {table} SET {column} = NULL WHERE typeof({column}) <> '{kind}'")


def _write(table: pa.Table, folder: Path, name: str, kind: str) -> None:
    if kind == "parquet":
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=1000)
        return
    new = pa.ipc.new_file if kind == "arrow file" else pa.ipc.new_stream
    with new(str(folder / f"{name}.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)


OTHER_TYPES: Sequence[pa.DataType | None] = (
    pa.int8(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.null(),
    pa.timestamp("s"),
    pa.timestamp("ns"),
    pa.duration("us"),
    pa.decimal128(38, 3),
    pa.date64(),
    pa.dictionary(pa.int8(), pa.string()),
    None,
)
