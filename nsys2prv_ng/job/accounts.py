"""What became of each report of a job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ReportAccount:
    """A report as it went into the trace."""

    file: str
    host: str
    nsys_version: str
    schema_version: str
    offset_ns: int
    """Added to its timestamps, before those of the trace are counted from 0."""
    warnings: list[str]


@dataclass
class SkippedReport:
    """A report that could not be read, as the user named it or its export, and why."""

    file: str
    why: str
