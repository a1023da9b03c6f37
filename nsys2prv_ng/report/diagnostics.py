"""What nsys itself said of a capture: DIAGNOSTIC_EVENT, which exports have from 2024 on.

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
"""Names of the severities; whatever is none of them is unknown."""

_MAY = re.compile(r"\bmight\b|\bmay\b", re.IGNORECASE)
_NO_LOSS = re.compile(r"^Plugin terminated with a signal: 15\b|\bwill be collected using\b", re.IGNORECASE)
"""nsys ends its plugins so when the capture ends; and data of which it says how it gets them."""
_LONGEST, _END = 300, 100
_MOST = 10
"""Of warnings of one job."""
_FOLDERS = re.compile(r"(?<![\w/.:-])~?/(?!proc/|sys/|dev/)(?:[^\s/'\"()]+/)+")
"""Of files, but those of the system, which every machine has and nsys's advice names."""
_NUMBER = re.compile(r"\d+")
_LOST = re.compile(
    r"\bnot all\b|\blos[ts]\b|drop|discard|overflow|overr[au]n|truncat|incomplete|missing|corrupt|terminated"
    r"|unable|\bfail|not (been )?(started|supported)|\bno \w+ trace\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Message:
    """A text, in one line, and how often it is there."""

    severity: str
    text: str
    count: int

    @property
    def reports_lost_data(self) -> bool:
        """Whether something that happened may not be in the report: errors, and warnings that say so."""
        return self.severity == ERROR or (_LOST.search(self.text) is not None and not _NO_LOSS.search(self.text))

    @property
    def short(self) -> str:
        """The text, or its begin and its end, where causes are."""
        if len(self.text) <= _LONGEST:
            return self.text
        return f"{self.text[: _LONGEST - _END]} ... {self.text[-_END:]}"

    @property
    def is_certain(self) -> bool:
        """Whether it tells of lost data for sure.

        That something *might* not have been collected nsys says of every process that ran on after the end of a capture
        range, or never made such calls.
        """
        return self.reports_lost_data and (self.severity == ERROR or not _MAY.search(self.text))


@dataclass(frozen=True)
class Diagnostics:
    """Numbers of messages by severity, and those that are warnings or errors."""

    counts: dict[str, int] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)


def describe_lost_data(of_reports: Mapping[str, Diagnostics]) -> list[str]:
    """A warning for each message that tells for sure of lost data, by the names of reports.

    Messages that differ in numbers only, as of processes, are one: the first is told.
    """
    having: dict[tuple[str, str], dict[str, Message]] = {}
    for name, diagnostics in of_reports.items():
        for message in diagnostics.messages:
            if message.is_certain:
                alike = message.severity, _NUMBER.sub("", message.text)
                having.setdefault(alike, {}).setdefault(name, message)
    warnings = []
    for messages in having.values():
        (name, message), *_ = messages.items()
        several = f"nsys says of {len(messages):,} of {len(of_reports):,} reports"
        where = f"{name}: nsys says" if len(messages) == 1 else several
        what = "that there was an error" if message.severity == ERROR else "that data is missing"
        warnings.append(f"{where} {what}: {message.short}")
    more = len(warnings) - _MOST
    return warnings if more <= 0 else [*warnings[:_MOST], f"nsys says of {more:,} more things that data is missing"]


def join_text(text: object) -> str:
    """A message in one line, without the folders of files, which tell of the user and not of what was lost."""
    return _FOLDERS.sub("", " ".join(str(text or "").split()))


def read_diagnostics(database: Database) -> Diagnostics:
    """Messages of an export; none where it does not have the table."""
    frame = database.read_frame(TABLE, ["severity", "text"])
    severities = [SEVERITIES.get(value, UNKNOWN) for value in frame["severity"]]
    texts = [join_text(text) for text in frame["text"]]
    told = Counter(each for each in zip(severities, texts, strict=True) if each[0] in (WARNING, ERROR))
    return Diagnostics(dict(Counter(severities)), [Message(*each, count) for each, count in told.items()])
