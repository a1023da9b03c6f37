"""A translation for tests: the trace, read back, beside the reports that it was made of."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.sources.registry import select_sources
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.result import SourceAccount, TranslationResult
from nsys2prv_ng.translation.translate import translate
from tests import report_truth as truth
from tests.report_truth import Objects, Report, split_name
from tests.trace_reader import Trace, pair_intervals, read_trace

SOURCES = "kernels,memory_operations,cuda_graphs,cuda_api,launch_lines,nvtx"
CUDA_API, MEMORY, BYTES, KERNEL, NCCL_KERNEL, GRAPH = 63000000, 63000001, 63000002, 63000006, 63000007, 63000008
CAPTURE = 63000300
LAUNCH, COPY = 55001, 55002


@dataclass(frozen=True)
class Translated:
    """A trace and the reports that it was made of."""

    summary: TranslationResult
    trace: Trace
    reports: tuple[Path, ...]

    @property
    def start(self) -> int:
        """UTC (ns) of time 0."""
        return self.summary.start_utc_ns

    def account(self, source: str) -> SourceAccount:
        return next(account for account in self.summary.sources if account.name == source)

    def intervals(self, *event_types: int) -> pd.DataFrame:
        """Intervals with begin and end in UTC and the label of each value as `name`."""
        found = pair_intervals(self.trace, *event_types)
        tables = [self.trace.values.get(event_type, {}) for event_type in found["type"]]
        names = [table[value] for table, value in zip(tables, found["value"], strict=True)]
        return found.assign(begin=found["begin"] + self.start, end=found["end"] + self.start, name=names)

    def task_of(self, rows: pd.Series) -> np.ndarray:
        """Task, from 0, of each row."""
        return np.array(self.trace.task_of_row, np.int64)[rows.to_numpy(np.int64)] - 1

    @cached_property
    def objects(self) -> Objects:
        """What the reports hold; most traces are compared with others and not with that."""
        return Objects([Report(path) for path in self.reports])

    @cached_property
    def operations(self) -> pd.DataFrame:
        return truth.list_operations(self.objects)

    @cached_property
    def gpu_operations(self) -> pd.DataFrame:
        return truth.list_gpu_operations(self.objects)

    @cached_property
    def calls(self) -> pd.DataFrame:
        return truth.list_calls(self.objects)

    @cached_property
    def nvtx(self) -> pd.DataFrame:
        events = truth.list_nvtx(self.objects)
        split = {text: split_name(text) for text in set(events["text"])}
        name, number = ([split[text][i] for text in events["text"]] for i in range(2))
        return events.assign(name=name, number=pd.array(number, "Int64"))


def translated_set(
    reports: Sequence[Path],
    folder: Path,
    sources: str = SOURCES,
    selection: Selection | None = None,
    *,
    derived: bool = True,
) -> Translated:
    """Translate reports into a trace in a folder, which is made."""
    folder.mkdir(exist_ok=True)
    output = folder / "trace.prv"
    selection = selection or Selection()
    source_options = SourceOptions(nvtx_range=selection.nvtx_range)
    chosen = select_sources(sources, derived=derived)
    plan = TranslationPlan(sources=chosen, source_options=source_options, selection=selection, several_jobs=True)
    summary = translate(reports, output, plan)
    return Translated(summary, read_trace(output).omit_path(), tuple(reports))


def bytes_of_trace(reports: Sequence[Path], folder: Path) -> tuple[bytes, bytes, bytes]:
    """.prv, .pcf and .row; folders differ so that the trace has one name, which is in it."""
    output = folder / "out" / "trace.prv"
    output.parent.mkdir(parents=True)
    translate(reports, output, TranslationPlan(sources=select_sources(None), several_jobs=True))
    prv, pcf, row = (output.with_suffix(suffix).read_bytes() for suffix in (".prv", ".pcf", ".row"))
    shutil.rmtree(output.parent)
    return prv, pcf, row


class Translations:
    """`translations(reports)`: the trace of all that most tests look at, made once for tests of several files.

    Tests of the same reports run one after the other on one worker (tests/conftest.py). The last traces are kept, up to
    some bytes of them.
    """

    _KEPT_BYTES = 60_000_000

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._made: dict[tuple[tuple[Path, ...], str], Translated] = {}

    def __call__(self, reports: Sequence[Path], sources: str = SOURCES) -> Translated:
        key = tuple(reports), sources
        translated = self._made.pop(key, None)
        if translated is None:
            self._count += 1
            translated = translated_set(reports, self._folder / str(self._count), sources)
        self._made[key] = translated  # the last one is the last to go
        while len(self._made) > 1 and sum(t.summary.bytes for t in self._made.values()) > self._KEPT_BYTES:
            self._remove(next(iter(self._made)))
        return translated

    def _remove(self, key: tuple[tuple[Path, ...], str]) -> None:
        translated = self._made.pop(key)
        if "objects" in vars(translated):
            for report in translated.objects.reports:
                report.connection.close()
        shutil.rmtree(translated.trace.path.parent)

    def close(self) -> None:
        for key in list(self._made):
            self._remove(key)


def changed(report: Path, copy: Path, statements: Iterable[str]) -> Path:
    """A copy of a report after these SQL statements."""
    copy.write_bytes(report.read_bytes())
    connection = sqlite3.connect(copy)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return copy
