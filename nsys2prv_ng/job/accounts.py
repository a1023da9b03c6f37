"""Accounts of the reports of a job: those that were read, and those that were skipped."""

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
    """Added to its times (ns), before the times of the trace are counted from 0."""
    warnings: list[str]


@dataclass
class SkippedReport:
    """A report that could not be read: its name as the user gave it, or that of its export, and why."""

    file: str
    why: str
