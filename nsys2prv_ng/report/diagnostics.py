"""Messages of nsys itself about a capture: DIAGNOSTIC_EVENT, which exports have from 2024 on.

Its rows have a severity (ENUM_DIAGNOSTIC_SEVERITY_LEVEL) and a text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from nsys2prv_ng.report.database import Database

TABLE = "DIAGNOSTIC_EVENT"

WARNING, ERROR, UNKNOWN = "warning", "error", "unknown"
SEVERITIES = {1: "info", 2: WARNING, 3: ERROR, 4: "verbose"}
"""Names of the severities; all others are unknown."""

_MAY = re.compile(r"\bmight\b|\bmay\b", re.IGNORECASE)
_NO_LOSS = re.compile(r"^Plugin terminated with a signal: 15\b|\bwill be collected using\b", re.IGNORECASE)
"""nsys ends its plugins by this signal when the capture ends; and data is not lost if nsys says how it collects it."""
_LONGEST, _END = 300, 100
_MOST = 10
"""Most warnings of one job."""
_FOLDERS = re.compile(r"(?<![\w/.:-])~?/(?!proc/|sys/|dev/)(?:[^\s/'\"()]+/)+")
"""Folders of files, except those of the system, which every machine has and nsys's advice names."""
_NUMBER = re.compile(r"\d+")
_LOST = re.compile(
    r"\bnot all\b|\blos[ts]\b|drop|discard|overflow|overr[au]n|truncat|incomplete|missing|corrupt|terminated"
    r"|unable|\bfail|not (been )?(started|supported)|\bno \w+ trace\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Message:
    """A text, in one line, and the number of times that it occurs."""

    severity: str
    text: str
    count: int

    @property
    def reports_lost_data(self) -> bool:
        """Whether events may be missing from the report: errors, and warnings that say so."""
        return self.severity == ERROR or (_LOST.search(self.text) is not None and not _NO_LOSS.search(self.text))

    @property
    def short(self) -> str:
        """The text, or its start and its end, where causes are."""
        if len(self.text) <= _LONGEST:
            return self.text
        return f"{self.text[: _LONGEST - _END]} ... {self.text[-_END:]}"

    @property
    def is_certain(self) -> bool:
        """Whether the message is about data that is certainly lost.

        nsys says that data *might* not have been collected of every process that ran on after the end of a capture
        range, or never made such calls.
        """
        return self.reports_lost_data and (self.severity == ERROR or not _MAY.search(self.text))


@dataclass(frozen=True)
class Diagnostics:
    """Numbers of messages by severity, and those that are warnings or errors."""

    counts: dict[str, int] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)


def describe_lost_data(diagnostics_by_report: Mapping[str, Diagnostics]) -> list[str]:
    """Return a warning for each message about data that is certainly lost, by the names of reports.

    Messages that differ only in numbers, such as those of processes, are one: the first is shown.
    """
    having: dict[tuple[str, str], dict[str, Message]] = {}
    for name, diagnostics in diagnostics_by_report.items():
        for message in diagnostics.messages:
            if message.is_certain:
                alike = message.severity, _NUMBER.sub("", message.text)
                having.setdefault(alike, {}).setdefault(name, message)
    warnings = []
    for messages in having.values():
        (name, message), *_ = messages.items()
        several = f"{len(messages):,} of {len(diagnostics_by_report):,} reports"
        where = name if len(messages) == 1 else several
        what = "an error" if message.severity == ERROR else "that data is missing"
        warnings.append(f"{where}: nsys reports {what}: {message.short}")
    more = len(warnings) - _MOST
    return (
        warnings if more <= 0 else [*warnings[:_MOST], f"nsys reports in {more:,} more messages that data is missing"]
    )


def join_text(text: object) -> str:
    """Return a message in one line, without the folders of files: they describe the user, not what was lost."""
    return _FOLDERS.sub("", " ".join(str(text or "").split()))


def read_diagnostics(database: Database) -> Diagnostics:
    """Return the messages of an export; none if it lacks the table."""
    columns = database.read_objects(TABLE, ["severity", "text"])
    severities = [SEVERITIES.get(value, UNKNOWN) for value in columns["severity"]]
    texts = [join_text(text) for text in columns["text"]]
    counts = Counter(pair for pair in zip(severities, texts, strict=True) if pair[0] in (WARNING, ERROR))
    return Diagnostics(dict(Counter(severities)), [Message(*pair, count) for pair, count in counts.items()])
