"""Accounts of the reports of a job: reports that were read, and reports that were skipped."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ReportAccount:
    """A report that is in the trace."""

    file: str
    host: str
    nsys_version: str
    schema_version: str
    offset_ns: int
    """Offset that was added to its times (ns), before time 0 of the trace was subtracted."""
    warnings: list[str]


@dataclass
class SkippedReport:
    """A report that could not be read: its name as the user gave it, or the name of its export, and the reason."""

    file: str
    why: str
