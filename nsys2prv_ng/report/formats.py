"""The formats of reports and their exports, each declared once: its names and its first bytes.

The module imports no library: the command line asks it for endings before it loads anything, and readers for first
bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nsys2prv_ng.value_class import ValueClass


class ExportFormat(ValueClass):
    """A format that `nsys export` writes: a file, or a folder with a file for each table.

    `type`: its name in `nsys export --type`. `ending`: what nsys adds to the name of a report to name its export.
    `first_bytes`: the first bytes of its file, or of the files in its folder. `table_suffixes`: the suffixes that files
    of tables have in its folder; none for a format that is a file.
    """

    type: str
    ending: str
    first_bytes: tuple[bytes, ...]
    table_suffixes: tuple[str, ...] = ()

    @property
    def is_folder(self) -> bool:
        return bool(self.table_suffixes)

    @property
    def endings(self) -> tuple[str, ...]:
        """All endings that nsys, or whoever names its output, adds to the name of a report."""
        return (self.ending, f".{self.type}", *self.table_suffixes)

    @property
    def command(self) -> str:
        """The command with which a user exports a report to this format."""
        return f"nsys export --type {self.type} REPORT{REPORT_ENDINGS[0]}"


REPORT_ENDINGS: Final = (".nsys-rep", ".qdrep")
"""Endings of reports as nsys writes them."""


PARQUET = ExportFormat("parquetdir", "_pqtdir", (b"PAR1",), (".parquet",))
ARROW = ExportFormat("arrowdir", "_arwdir", (b"ARROW1", b"\xff\xff\xff\xff"), (".arrow", ".arrows"))
"""First the bytes of an Arrow file, then of an Arrow stream; other programs use the last suffix for streams."""
SQLITE = ExportFormat("sqlite", ".sqlite", (b"SQLite format 3\x00",))

EXPORT_FORMATS: tuple[ExportFormat, ...] = (PARQUET, ARROW, SQLITE)
"""Formats by preference.

benchmarks/exports.py measures export and reading together: Parquet is written faster than SQLite and, if there is text,
read faster. Arrow saves little more time and is several times as large. The version of nsys decides which formats
exist: 2022.4 has only SQLite, 2023.4 all.
"""

FOLDER_FORMATS: Final = tuple(format for format in EXPORT_FORMATS if format.is_folder)
TABLE_SUFFIXES: Final = tuple(suffix for format in FOLDER_FORMATS for suffix in format.table_suffixes)

REPORTS_HELP: Final = (
    f"Reports ({REPORT_ENDINGS[0]}) or their exports"
    f" ({', '.join(format.ending for format in sorted(EXPORT_FORMATS, key=lambda format: format.is_folder))})"
)
"""How help texts describe the files that commands read."""

_ENDINGS = (*REPORT_ENDINGS, *(ending for format in EXPORT_FORMATS for ending in format.endings))


def get_report_name(path: Path) -> str:
    """Return the name that a report and all of its exports share: the name of a file without its ending."""
    name = path.name
    return next((name.removesuffix(ending) for ending in _ENDINGS if name.endswith(ending)), name)


def is_report_name(path: Path) -> bool:
    """Return whether a file or folder is named like a report or an export."""
    return path.name.endswith(_ENDINGS)


def find_format(export: Path) -> ExportFormat:
    """Return the preferred format that is a folder or a file as `export` is, whatever its name."""
    is_folder = export.is_dir()
    return next(format for format in EXPORT_FORMATS if format.is_folder == is_folder)
