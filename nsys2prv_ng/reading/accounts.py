"""Accounts of the reports of a job: reports that were read, and reports that were skipped."""

from __future__ import annotations

from pathlib import Path

from nsys2prv_ng.errors import escape_unprintable
from nsys2prv_ng.value_class import ValueClass


class ReportAccount(ValueClass):
    """A report that is in the trace."""

    file: str
    host: str
    nsys_version: str
    schema_version: str
    offset_ns: int
    """Offset that was added to its times (ns), before time 0 of the trace was subtracted."""
    warnings: list[str]


class SkippedReport(ValueClass):
    """A report that could not be read: its name as the user gave it, or the name of its export, and the reason."""

    file: str
    why: str

    @classmethod
    def from_error(cls, path: Path, error: object) -> SkippedReport:
        """Return the account of a report, given its error, which may begin with the name of the report."""
        return cls(str(path), str(error).removeprefix(f"{escape_unprintable(str(path))}: "))
