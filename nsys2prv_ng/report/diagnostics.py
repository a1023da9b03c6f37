"""Describes what a capture lacks: by the messages of nsys, and by how it traced CUDA graphs.

Messages are in DIAGNOSTIC_EVENT, which exports have since nsys 2024: rows with a severity
(ENUM_DIAGNOSTIC_SEVERITY_LEVEL) and a text. A graph that was traced as a whole (--cuda-graph-trace of nsys) is one
operation on its stream: nsys does not record which kernels ran in it, or when.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from nsys2prv_ng.text.formatting import count_noun
from nsys2prv_ng.value_class import ValueClass

if TYPE_CHECKING:  # what compares saved summaries needs no library
    from nsys2prv_ng.report.database import Database

TABLE = "DIAGNOSTIC_EVENT"

WARNING, ERROR, UNKNOWN = "warning", "error", "unknown"
SEVERITIES = {1: "info", 2: WARNING, 3: ERROR, 4: "verbose"}
"""Names of severities; all other numbers are unknown."""

_MAY = re.compile(r"\bmight\b|\bmay\b", re.IGNORECASE)
_NO_LOSS = re.compile(r"^Plugin terminated with a signal: 15\b|\bwill be collected using\b", re.IGNORECASE)
"""nsys ends its plugins with this signal at the end of a capture. No data is lost if it reports how it collects it."""
_LONGEST, _END = 300, 100
"""Most characters of a message, and those of them from its end: a choice, some lines of a terminal."""
_MOST = 10
"""Most warnings for one job."""
_FOLDERS = re.compile(r"(?<![\w/.:-])~?/(?!proc/|sys/|dev/)(?:[^\s/'\"()]+/)+")
"""Folders in file names, except system folders, which every machine has and nsys names in its advice."""
_NUMBER = re.compile(r"\d+")
_LOST = re.compile(
    r"\bnot all\b|\blos[ts]\b|drop|discard|overflow|overr[au]n|truncat|incomplete|missing|corrupt|terminated"
    r"|unable|\bfail|not (been )?(started|supported)|\bno \w+ trace\b",
    re.IGNORECASE,
)


class Message(ValueClass):
    """Message in one line, and how many times it occurs."""

    severity: str
    text: str
    count: int

    @property
    def reports_lost_data(self) -> bool:
        """Whether the report may lack events: true for errors, and for warnings about lost data."""
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

        nsys reports that data *might* not have been collected for every process that ran on after the end of a capture
        range, or that never made such calls.
        """
        return self.reports_lost_data and (self.severity == ERROR or not _MAY.search(self.text))


class Diagnostics(ValueClass):
    """Numbers of messages by severity, and the warnings and errors."""

    counts: dict[str, int] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)


def describe_lost_data(diagnostics_by_report: Mapping[str, Diagnostics]) -> list[str]:
    """Return a warning for each message about data that is certainly lost. The diagnostics are by name of the report.

    Messages that differ only in numbers, such as process ids, count as one: the first is shown.
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
    """Return a message in one line without folders of files, which describe the user and not what was lost."""
    return _FOLDERS.sub("", " ".join(str(text or "").split()))


def read_diagnostics(database: Database) -> Diagnostics:
    """Return the messages of an export; none if it lacks the table."""
    columns = database.read_objects(TABLE, ["severity", "text"])
    severities = [SEVERITIES.get(value, UNKNOWN) for value in columns["severity"]]
    texts = [join_text(text) for text in columns["text"]]
    counts = Counter(pair for pair in zip(severities, texts, strict=True) if pair[0] in (WARNING, ERROR))
    return Diagnostics(dict(Counter(severities)), [Message(*pair, count) for pair, count in counts.items()])


KINDS = BY_NODE, AS_WHOLE = "by node", "as a whole"

REMEDY = "capture every rank with --cuda-graph-trace=node of nsys"


def warn_of_mixed_graphs(traced: Iterable[Sequence[str]]) -> list[str]:
    """Return a warning if graphs were traced in both ways. `traced`: for each report, BY_NODE, AS_WHOLE or both."""
    reports = list(traced)
    by_node, as_whole = (sum(kind in kinds for kinds in reports) for kind in (BY_NODE, AS_WHOLE))
    if not by_node or not as_whole:
        return []
    how = f"by node in {count_noun(by_node, 'report')} and as a whole in {as_whole:,}"
    return [f"nsys traced CUDA graphs {how}, where their kernels are not known: {REMEDY}"]
