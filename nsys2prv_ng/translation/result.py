"""The result of a translation: what became of the events of each source, and the size of the trace.

The fields are the keys of the JSON that `translate --stats` writes. Programs rely on them: a change of a key or of its
meaning needs a new RESULT_VERSION.
"""

from __future__ import annotations

from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING

from nsys2prv_ng.clock.alignment_table import Alignment
from nsys2prv_ng.errors import escape_unprintable
from nsys2prv_ng.paraver.load_cost import LoadCost, format_memory, format_seconds
from nsys2prv_ng.reading.accounts import ReportAccount, SkippedReport
from nsys2prv_ng.sources.shared.reasons import KIND_WORDS, Kind, find_kind
from nsys2prv_ng.text.formatting import count_noun, format_bytes, format_table, format_time, format_utc, format_window
from nsys2prv_ng.value_class import ValueClass

if TYPE_CHECKING:
    from nsys2prv_ng.summary.job import JobSummary

RESULT_VERSION = 1


class SourceAccount(ValueClass):
    """Events of one source over all reports. Law: read = written + the sum of dropped, of all kinds."""

    name: str
    title: str
    read: int = 0
    written: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Number of events that are not written, by reason. Only those of the kind lost are missing in the trace."""
    closed_at_end: int = 0
    cut_at_end: int = 0
    """Calls of idle threads that are cut, because the trace ends when everything else has ended."""
    load: LoadCost = field(default_factory=LoadCost)
    """The records of the source in the trace, without states."""

    @property
    def kinds(self) -> dict[str, Kind]:
        """Kind of each reason in `dropped`: what became of these events."""
        return {reason: find_kind(reason) for reason in self.dropped}

    def count(self, kind: Kind) -> int:
        """Return the number of events of a kind that are not written."""
        return sum(count for reason, count in self.dropped.items() if find_kind(reason) == kind)

    def list_reasons(self) -> list[str]:
        """Return one line for each reason, in the order of kinds."""
        kinds = list(KIND_WORDS)
        lines = []
        for reason, kind in sorted(self.kinds.items(), key=lambda item: (kinds.index(item[1]), item[0])):
            word = KIND_WORDS[kind]
            what = reason if reason.startswith(f"{word} ") else f"{word}, {reason}"
            lines.append(f"{self.name}: {self.dropped[reason]:,} {what}")
        return lines


class NsysMessages(ValueClass):
    """Messages from nsys itself: the numbers of warnings and errors, and of reports with any."""

    warnings: int
    errors: int
    reports: int
    lost: int
    """Number of messages that are certain that data is missing."""

    def __str__(self) -> str:
        kinds = [(self.warnings, "warning"), (self.errors, "error")]
        counts = " and ".join(count_noun(number, noun) for number, noun in kinds if number)
        lost = f"; {self.lost:,} report lost data" if self.lost else ""
        return f"nsys gave {counts} in {count_noun(self.reports, 'report')}{lost}"


class OverviewFacts(ValueClass):
    """What an overview omits: rows shown in steps of time, and waits and steps that do not fit. Times are ns."""

    state_rows: int
    """Rows whose states or GPU activity are shown in steps; all other rows are exact."""
    state_step_ns: int
    counter_rows: int
    counter_step_ns: int
    metric_rows: int
    metric_step_ns: int
    shortest_wait_ns: int
    """Shorter waits are dropped; 0 if no wait is dropped."""
    step_rows: int
    rows_with_steps: int
    """Rows that show the steps of the program; `rows_with_steps` would show them in a full trace."""

    def list_lines(self) -> list[str]:
        """Return one line for each part that is coarse or missing."""
        parts = (
            (f"states of {count_noun(self.state_rows, 'row')}", self.state_rows, self.state_step_ns),
            (f"counters of {count_noun(self.counter_rows, 'GPU')}", self.counter_rows, self.counter_step_ns),
            (f"metrics of {count_noun(self.metric_rows, 'GPU')}", self.metric_rows, self.metric_step_ns),
        )
        lines = [f"{what} are shown in steps of {format_time(step)}" for what, rows, step in parts if rows]
        if self.shortest_wait_ns:
            lines.append(f"waits of {format_time(self.shortest_wait_ns)} and more are shown")
        if self.step_rows < self.rows_with_steps:
            lines.append(
                f"steps of the first {self.step_rows:,} of {count_noun(self.rows_with_steps, 'row')} are shown"
            )
        return lines


_WIDE = 2
"""A trace is wide if it lasts more than this many times as long as the GPUs work: most of it shows no GPU work."""


class TraceFacts(ValueClass, kw_only=True):
    """What a translation read, and what is known of its trace before it is written. Times are in ns."""

    sources: list[SourceAccount]
    reports: list[ReportAccount]
    skipped: list[SkippedReport]
    start_utc_ns: int
    """UTC of time 0 of the trace."""
    duration_ns: int
    nodes: int
    tasks: int
    rows: int
    states: int
    events: int
    communications: int
    warnings: list[str]
    messages: NsysMessages
    clocks: Alignment
    pairs: int
    """Number of type:value pairs in the event lines; Paraver stores each as a record."""
    summary: JobSummary | None
    """The summary of the job, if it was requested."""
    overview: OverviewFacts | None
    """How coarse the trace is, if it is an overview."""
    gpu_time_ns: tuple[int, int] | None
    """Start of the first GPU operation and end of the last one, from time 0; None without GPU operations."""


class TranslationResult(TraceFacts, kw_only=True):
    """What a translation read and wrote. Times are in ns, sizes in bytes."""

    output: str
    bytes: int
    """Length of the text of the .prv; `file_bytes` is the size of its file, which may be compressed."""
    file_bytes: int
    seconds: float

    @property
    def load(self) -> LoadCost:
        """The load cost of the trace in Paraver."""
        return LoadCost(self.states, self.events, self.pairs, self.communications)

    @property
    def paraver_memory(self) -> int:
        """Estimated memory that Paraver needs for the trace (bytes)."""
        return self.load.memory

    @property
    def paraver_seconds(self) -> float:
        """Estimated time that Paraver needs to load the trace; only its order of magnitude is right."""
        return self.load.seconds

    @property
    def is_wide(self) -> bool:
        """Whether the trace lasts much longer than the GPUs work."""
        if self.gpu_time_ns is None:
            return False
        begin, end = self.gpu_time_ns
        return _WIDE * (end - begin) < self.duration_ns

    @property
    def start_utc(self) -> str:
        """UTC of time 0 of the trace, in ISO 8601."""
        return format_utc(self.start_utc_ns)

    def to_dict(self) -> dict[str, object]:
        """Return the fields as `json.dumps` takes them."""
        summary = None if self.summary is None else self.summary.to_dict()
        fields = {**asdict(replace(self, summary=None)), "clocks": self.clocks.to_dict(), "summary": summary}
        sources = [{**asdict(source), "kinds": source.kinds} for source in self.sources]
        load = {"paraver_memory": self.paraver_memory, "paraver_seconds": self.paraver_seconds}
        return {"version": RESULT_VERSION, "start_utc": self.start_utc, **fields, "sources": sources, **load}

    def text(self, *, verbose: bool = False) -> str:
        """Return the result as text for a terminal or a log; `verbose` adds the clocks and one line for each report."""
        lines = self._list_accounts()
        absent = [source.name for source in self.sources if not source.read]
        if absent:
            lines.append(f"  not in these reports: {', '.join(absent)}")
        if self.messages.reports:
            lines.append(f"  {self.messages}: nsys2prv-ng inspect shows them")
        lines += [f"  skipped: {report.file}: {report.why}" for report in self.skipped]
        lines.append(
            f"{self.output}: {count_noun(self.tasks, 'task')}, {count_noun(self.rows, 'row')},"
            f" {count_noun(self.nodes, 'node')}, {self.duration_ns / 1e9:.3f} s from {self.start_utc}"
        )
        if self.gpu_time_ns is not None:
            begin, end = self.gpu_time_ns
            only = "only " if self.is_wide else ""
            lines.append(f"the GPUs work {only}in {format_window(begin, max(end, begin + 1))}")
        compressed = f" ({format_bytes(self.file_bytes)} compressed)" if self.output.endswith(".gz") else ""
        lines.append(
            f"{count_noun(self.states, 'state')}, {count_noun(self.events, 'event line')},"
            f" {count_noun(self.communications, 'communication')}, {format_bytes(self.bytes)}{compressed}"
            f" in {self.seconds:.1f} s"
        )
        memory = format_memory(self.paraver_memory)
        lines.append(f"Paraver loads it in {format_seconds(self.paraver_seconds)}, with {memory} of memory")
        lines += [f"overview: {line}" for line in (self.overview.list_lines() if self.overview else ())]
        if self.clocks.is_corrected or verbose:
            lines += self.clocks.text().split("\n")
        if verbose:
            lines += [
                f"{r.file}: {r.host}, nsys {r.nsys_version}, schema {r.schema_version}, shifted {r.offset_ns:+,} ns"
                for r in self.reports
            ]
        return "\n".join(map(escape_unprintable, lines))

    def _list_accounts(self) -> list[str]:
        """Return the table of sources, which shows that read = written + all other columns, and a line by reason."""
        present = [source for source in self.sources if source.read]
        # Without any loss, the column says so.
        kinds = [kind for kind in KIND_WORDS if kind == "lost" or any(source.count(kind) for source in present)]
        titles = ("source", "read", "written", *(KIND_WORDS[kind] for kind in kinds))
        numbers = [(source.read, source.written, *map(source.count, kinds)) for source in present]
        rows = [(s.name, *(f"{n:,}" for n in counts)) for s, counts in zip(present, numbers, strict=True)]
        lines = format_table([titles, *rows])
        for source in self.sources:
            counts = {
                "without an end, closed at the end of the trace": source.closed_at_end,
                "of idle threads cut at the end of the trace, when all else has ended": source.cut_at_end,
            }
            lines += [f"  {line}" for line in source.list_reasons()]
            lines += [f"  {source.name}: {count:,} {what}" for what, count in counts.items() if count]
        return lines
