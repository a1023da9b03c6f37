"""Ways to damage reports, by a seeded generator: tables, columns, values, times, ids, names, bytes.

Each way returns a description of what it did.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from tests.damage_folders import flip_values, quote, write_damaged_folder

KEPT_ROWS = 1500
"""Rows left in each table of a trimmed report."""

NAMES = (
    *("", " ", "two\nlines", "\ttabs\t", "\r\n", "quotes ' \" ` \\", "<b>&amp;</b>", "NUL \x00 inside"),
    *("\x1b[31mred\x1b[0m", "".join(map(chr, range(1, 32))), "\x7f\x80\x9f\u2028\u2029\ufeff", "x" * 10_000),
    *("\n" * 10_000, "kernel " * 3000 + "end", "\N{SPARKLES} \N{FAMILY} \U0001f468\u200d\U0001f4bb"),
    *("right \u202eto left", "%s %d %n {0} ${HOME}", "LEVEL THREAD SIZE 1", "EVENT_TYPE", "VALUES", "0 Idle", "-1"),
    *("12345678901234567890", "٣", "ncclCommInitRank", "MPI Rank 3", "MPI Rank 99999999999999999999"),
    *("MPI Rank " + "9" * 5000, "cudaProfilerStart"),
)
"""Names that the program has to format, match or count."""

INVALID_TEXTS = ("ff", "c328", "61ff62", "eda080", "f8888080", "00", "6100ff")
"""Bytes (hexadecimal) of texts that are not UTF-8, or have a NUL."""

NUMBERS = (
    *(0, 1, -1, 2, 255, 2**15, 2**24, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**62, -(2**62), 2**63 - 1, -(2**63)),
)
OTHER_VALUES = (
    *("NULL", "0.5", "-1e18", "1e300", "9e999", "-9e999", "x'00ff'", "x''", "''", "'abc'", "'12'", "'{}'", "'0x10'"),
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


OFTEN = ("DYNAMIC_", "NVTX_EXPORT", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_GRAPH", "CUDA_GRAPH", "OSRT_API")
"""Starts of the names of tables that are damaged more often than others: a few among many that nothing depends on."""


class Report:
    """An export to SQLite under damage: its connection, its tables, and its random generator."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.rng = rng
        self.sql = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "writable_schema = ON"):
            self.sql.execute(f"PRAGMA {pragma}")
        # Values may become NULL where the schema does not allow it.
        self.sql.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') WHERE type = 'table'")
        self.sql.execute("PRAGMA writable_schema = RESET")

    def list_tables(self) -> list[str]:
        """Return the names of tables that have rows, except those that the program never reads."""
        names = [name for (name,) in self.sql.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
        return [
            name
            for name in names
            if not name.startswith(("ENUM_", "sqlite_")) and self.sql.execute(f'SELECT 1 FROM "{name}"').fetchone()
        ]

    def choose_table(self, *having: str) -> str:
        """Choose one of the tables that have all these columns; return the empty string if there is none."""
        tables = [name for name in self.list_tables() if set(having) <= set(self.list_columns(name))]
        often = [name for name in tables if name.startswith(OFTEN)]
        if often and self.rng.random() < 0.3:
            tables = often
        return self.rng.choice(tables) if tables else ""

    def list_columns(self, table: str) -> list[str]:
        """Return the names of the columns of a table."""
        return [name for (name,) in self.sql.execute("SELECT name FROM pragma_table_info(?)", (table,))]

    def choose_rows(self) -> str:
        """Return an SQL condition: all rows, some, or one."""
        factor, offset, every = (self.rng.randrange(1, 1000, 2), self.rng.randrange(100), self.rng.choice((2, 10, 100)))
        some = f"(rowid * {factor} + {offset}) % {every} = 0"
        one = f"rowid = 1 + {self.rng.randrange(1000)}"
        return self.rng.choice(("1", some, one, "rowid = 1"))

    def rewrite(self, table: str, select: str) -> None:
        """Replace a table by the rows of a query, under the same name. It has no constraints and no declared types."""
        self.sql.execute(f'CREATE TABLE "rewritten" AS {select}')
        self.sql.execute(f'DROP TABLE "{table}"')
        self.sql.execute(f'ALTER TABLE "rewritten" RENAME TO "{table}"')


def quote_text(value: str) -> str:
    """Return a text as SQL, by its bytes, since a NUL would end it."""
    return f"CAST(x'{value.encode('utf-8', 'surrogatepass').hex()}' AS TEXT)"


# ---- tables and columns ----------------------------------------------------------------------------------------------


def drop_table(report: Report) -> str:
    table = report.choose_table()
    report.sql.execute(f'DROP TABLE "{table}"')
    return table


def empty_table(report: Report) -> str:
    table = report.choose_table()
    report.sql.execute(f'DELETE FROM "{table}"')
    return table


def drop_column(report: Report) -> str:
    table = report.choose_table()
    columns = report.list_columns(table)
    left = columns[:]
    left.remove(report.rng.choice(columns))
    if left:
        report.rewrite(table, f"SELECT {', '.join(map(quote, left))} FROM {quote(table)}")
    return f"{table}, left {left}"


def duplicate_rows(report: Report) -> str:
    table = report.choose_table()
    times = report.rng.choice((2, 2, 3, 20))
    copies = f"(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {times}) SELECT i FROM n)"
    columns = ", ".join(map(quote, report.list_columns(table)))
    limit = 10_000 if times < 20 else 2000
    report.rewrite(table, f"SELECT {columns} FROM {quote(table)}, {copies} LIMIT {limit}")
    return f"{table} {times} times"


def shuffle_rows(report: Report) -> str:
    table = report.choose_table()
    factor = report.rng.randrange(1, 10**6, 2)
    report.rewrite(table, f'SELECT * FROM "{table}" ORDER BY rowid * {factor} % 65537')
    return table


def remake_table(report: Report) -> str:
    """Make a table one of another kind than nsys writes, or a view."""
    table = report.choose_table()
    columns = ", ".join(map(quote, report.list_columns(table)))
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
        first = quote(report.list_columns(table)[0])
        report.sql.execute(f"CREATE TABLE other ({columns}, extra GENERATED ALWAYS AS ({first}) VIRTUAL)")
        report.sql.execute(f"INSERT INTO other ({columns}) {rows}")
    else:
        report.sql.execute(f"CREATE TABLE other ({columns.upper()})")
        report.sql.execute(f"INSERT INTO other {rows}")
    report.sql.execute(f'DROP TABLE "{table}"')
    report.sql.execute(f'ALTER TABLE other RENAME TO "{table}"')
    return f"{table}, {kind}"


# ---- values ----------------------------------------------------------------------------------------------------------


def set_other_values(report: Report) -> str:
    """Set values of a column to one of another type, or to a number that nobody expects."""
    table = report.choose_table()
    column = report.rng.choice(report.list_columns(table))
    value = report.rng.choice((*OTHER_VALUES, *map(str, NUMBERS)))
    _set(report, table, column, value, report.choose_rows())
    return f"{table}.{column} = {value}"


def mix_values(report: Report) -> str:
    """Set another value in each row of some columns: small numbers, any numbers, or other types among them."""
    table = report.choose_table()
    columns = report.list_columns(table)
    where = report.choose_rows()
    done = []
    for column in report.rng.sample(columns, min(report.rng.choice((1, 1, 3)), len(columns))):
        name = quote(column)
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


def set_other_metadata(report: Report) -> str:
    """Set other values in the small tables that everything else depends on."""
    tables = [
        name
        for name in report.list_tables()
        if name.startswith(("TARGET_INFO", "META_DATA", "MPI_RANKS", "MPI_COMM", "ThreadN", "PROCESSES", "ANALYSIS"))
        or name.startswith(("NVTX_PAYLOAD", "NVTX_EXPORT", "NVTX_EVENTS_", "GENERIC_EVENT"))
    ]
    table = report.rng.choice(tables)
    column = report.rng.choice(report.list_columns(table))
    value = report.rng.choice((*OTHER_VALUES, *map(str, NUMBERS), *map(quote_text, NAMES)))
    where = report.rng.choice(("1", f"rowid % {report.rng.choice((2, 5))} = 0"))
    _set(report, table, column, value, where)
    return f"{table}.{column} = {value[:60]} where {where}"


def set_one_pair(report: Report) -> str:
    """Set one of the values in a table of names and values, by its name."""
    table = report.rng.choice(
        [name for name in report.list_tables() if {"name", "value"} <= set(report.list_columns(name))] or [""]
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
    report.sql.execute(f'INSERT INTO "{table}" (name, value) VALUES (?, {quote_text(text)})', (name,))
    return f"{table} {name} = {text[:60]!r}"


def _set(report: Report, table: str, column: str, value: str, where: str) -> None:
    report.sql.execute(f"UPDATE OR IGNORE {quote(table)} SET {quote(column)} = {value} WHERE {where}")


def change_ids(report: Report) -> str:
    """Change ids so that they refer to nothing, to something else, or all to the same."""
    tables = {
        name: [c for c in report.list_columns(name) if c.lower().endswith(("id", "tid", "pid"))]
        for name in report.list_tables()
    }
    table = report.rng.choice([name for name, columns in tables.items() if columns])
    column = report.rng.choice(tables[table])
    name = quote(column)
    value = report.rng.choice(
        (
            f"{name} + 1",
            f"{name} + 1000000",
            f"-{name}",
            f"{name} % 3",
            f"{name} << 24",
            f"{name} & 16777215",
            f"(SELECT max({name}) FROM {quote(table)})",
            "rowid",
            "-rowid",
            "rowid << 24",
        )
    )
    _set(report, table, column, value, report.choose_rows())
    return f"{table}.{column} = {value}"


# ---- times -----------------------------------------------------------------------------------------------------------


def change_times(report: Report) -> str:
    """Change times: huge, negative, backward, equal, far away."""
    column = report.rng.choice(("start", "end", "timestamp", "start"))
    table = report.choose_table(column)
    if not table:
        return "none"
    name = quote(column)
    long = 'max("end" - "start", 0)' if {"start", "end"} <= set(report.list_columns(table)) else "100"
    value = report.rng.choice(
        (
            *("0", "1", "-1", "5000000000", f"{name} + {YEAR}", f"{name} - {YEAR}", f"{name} + {50 * 86400 * SECOND}"),
            *(f"{name} * 1000", f"-{name}", f"{name} / 1000000 * 1000000", f"{name} - 100000", f"{name} + 100000"),
            *(f"{name} + (rowid % 7 - 3) * 1000000", f"{name} + {long} * (rowid % 50)", f"{name} - 2 * {long}"),
            *map(str, (2**53, 2**62, 2**63 - 1, 2**63 - 2, -(2**63) + 1, -(2**62))),
        )
    )
    where = report.choose_rows()
    columns = (
        [column] if report.rng.random() < 0.5 else [c for c in ("start", "end") if c in report.list_columns(table)]
    )
    for changed in columns or [column]:
        _set(report, table, changed, value.replace(name, quote(changed)), where)
    return f"{table}.{columns} = {value} where {where}"


def set_one_time(report: Report) -> str:
    """Make thousands of rows with one time."""
    column = report.rng.choice(("start", "timestamp"))
    table = report.choose_table(column)
    if not table:
        return "none"
    columns = report.list_columns(table)
    kept = ", ".join(map(quote, columns))
    copies = "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) SELECT i FROM n)"
    report.rewrite(table, f"SELECT {kept} FROM {quote(table)}, {copies} LIMIT 3000")
    time = f'(SELECT min("{column}") FROM "{table}")'
    if report.rng.random() < 0.5 and "end" in columns:
        report.sql.execute(f'UPDATE "{table}" SET "end" = {time}')
    report.sql.execute(f'UPDATE "{table}" SET "{column}" = {time}')
    return f"{table}.{column}"


# ---- names -----------------------------------------------------------------------------------------------------------


def change_names(report: Report) -> str:
    """Change names to ones that are hard to write in one line."""
    texts = {
        "StringIds": ["value"],
        "NVTX_EVENTS": ["text"],
        "TARGET_INFO_GPU": ["name", "uuid", "busLocation"],
        "TARGET_INFO_GPU_METRICS": ["metricName"],
        "PROCESSES": ["name"],
        "TARGET_INFO_SYSTEM_ENV": ["value"],
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": ["name", "description"],
        "NVTX_PAYLOAD_SCHEMAS": ["name"],
        "NVTX_EXPORT_TRANSLATION": ["originalName", "sanitizedName"],
    }
    pairs = [
        (t, c)
        for t, columns in texts.items()
        for c in columns
        if t in report.list_tables() and c in report.list_columns(t)
    ]
    if not pairs:
        return "none"
    table, column = report.rng.choice(pairs[:1] * 4 + pairs)
    values = [quote_text(name) for name in report.rng.sample(NAMES, 5)]
    values += [f"CAST(x'{code}' AS TEXT)" for code in report.rng.sample(INVALID_TEXTS, 2)]
    for i, text in enumerate(values):
        _set(report, table, column, text, f"rowid % {report.rng.choice((7, 20))} = {i}")
    return f"{table}.{column}"


def make_names_equal(report: Report) -> str:
    """Make all names equal, or equal but for the last character."""
    if "value" not in report.list_columns("StringIds"):
        return "none"
    value = report.rng.choice(
        (quote_text(report.rng.choice(NAMES)), f"{quote_text('y' * 9000)} || id", "value || char(10)")
    )
    _set(report, "StringIds", "value", value, "1")
    return value[:60]


def change_payloads(report: Report) -> str:
    """Change NVTX payloads: JSON, or bytes after layouts that may be damaged as well."""
    if "NVTX_EVENTS" not in report.list_tables():
        return "none"
    column = report.rng.choice(
        [c for c in report.list_columns("NVTX_EVENTS") if c in ("jsonText", "binaryData")] or [""]
    )
    if not column:
        return "none"
    value = quote_text(report.rng.choice(JSONS))
    if column == "binaryData":
        data = bytes(report.rng.randrange(256) for _ in range(report.rng.choice((0, 1, 7, 40, 100))))
        value = report.rng.choice((f"x'{data.hex()}'", f"substr(binaryData, 1, {report.rng.randrange(60)})"))
    _set(report, "NVTX_EVENTS", column, value, f"{column} IS NOT NULL AND {report.choose_rows()}")
    return f"{column} = {value[:60]}"


def rename_payload_table(report: Report) -> str:
    """Give a table of payloads to another process, domain or schema, or to none."""
    tables = [name for name in report.list_tables() if name.startswith("DYNAMIC_")]
    if not tables:
        return "none"
    table = report.rng.choice(tables)
    fields = table.split("_")
    i = report.rng.choice((-3, -2, -1))
    others = [name.split("_")[i] for name in tables]
    fields[i] = report.rng.choice((*others, *map(str, NUMBERS), "9" * 20, "9" * 30, "", "x", "1_1"))
    new = "_".join(fields)
    report.sql.execute(f"ALTER TABLE {quote(table)} RENAME TO {quote(new)}")
    return f"{table} to {new}"


WAYS_OF_TABLES: tuple[Callable[[Report], str], ...] = (
    *(drop_table, empty_table, drop_column, duplicate_rows, shuffle_rows, remake_table),
    *(set_other_values, set_other_values, mix_values, mix_values, mix_values, set_other_metadata, set_other_metadata),
    *(set_one_pair, change_ids, change_ids, change_times, change_times, change_times, set_one_time),
    *(change_names, change_names, make_names_equal, change_payloads, rename_payload_table),
)


# ---- bytes -----------------------------------------------------------------------------------------------------------


def damage_bytes(path: Path, rng: random.Random) -> str:
    """Damage the bytes of a file, as a bad disk or an unfinished copy would."""
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
    elif kind == "cells":  # the counts and pointers at the start of pages
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


def write_trimmed(report: Path, copy: Path) -> None:
    """Write a copy of a report with the first rows of each table."""
    shutil.copyfile(report, copy)
    copy.chmod(0o600)
    with closing(sqlite3.connect(copy, isolation_level=None)) as sql:
        sql.execute("PRAGMA journal_mode = OFF")
        for (table,) in sql.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if table != "StringIds":
                sql.execute(f'DELETE FROM "{table}" WHERE rowid > {KEPT_ROWS}')
        sql.execute("VACUUM")


def write_damaged_copy(report: Path, folder: Path, rng: random.Random) -> tuple[Path, list[str]]:
    """Write a damaged copy of a report, an SQLite file or a folder of tables; return it, and what was done to it."""
    copy = folder / report.name
    shutil.copyfile(report, copy)
    done = []
    kind = rng.choice((*("tables",) * 8, "bytes", "both"))  # most damage of bytes ends in an error
    if kind != "bytes":
        damaged = Report(copy, rng)
        with closing(damaged.sql):
            for _ in range(rng.choice((1, 1, 2, 3, 5))):
                way = rng.choice(WAYS_OF_TABLES)
                with suppress(sqlite3.Error):  # fails after some earlier damage, as on a view
                    done.append(f"{way.__name__}: {way(damaged)}")
    as_folder = rng.random() < 0.16
    if as_folder:
        copy = write_damaged_folder(copy, rng, done)
    if kind != "tables":
        file = rng.choice(sorted(copy.iterdir())) if copy.is_dir() else copy
        for _ in range(rng.choice((1, 1, 3))):
            done.append(damage_bytes(file, rng))
    if copy.is_dir() and rng.random() < 0.3:
        done.append(flip_values(copy, rng))
    return copy, done
