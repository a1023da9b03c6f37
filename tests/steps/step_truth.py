"""Steps that end with the work of the GPUs, by plain SQL and loops over the reports: nothing of the translator."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

import pandas as pd

from tests.report_truth import PUSH_POP, Report, split_name

Process = tuple[int, int]
"""Index of the report, and the process."""
Operation = tuple[int, int, int, bool]
"""Begin, end and launch (UTC), and whether the launch was recorded."""


def count_warmup(lengths: Sequence[int]) -> int:
    """Return how many of the first steps warm up, by the definition."""
    middle = statistics.median(lengths)
    deviation = statistics.median(abs(length - middle) for length in lengths)
    warmup = 1
    while warmup < len(lengths) // 2 and lengths[warmup] > middle + 3 * deviation:
        warmup += 1
    return warmup


def list_ranges(reports: Sequence[Report], name: str) -> pd.DataFrame:
    """Return process, number, begin and end (UTC) of the push/pop ranges of the default domain with a name."""
    rows = []
    for index, report in enumerate(reports):
        own = report.nvtx[(report.nvtx["style"] == PUSH_POP) & (report.nvtx["domain"] == "")]
        for begin, end, tid, text in zip(own["begin"], own["end"], own["tid"], own["text"], strict=True):
            known, number = split_name(text)
            if known == name and number is not None:
                rows.append(((index, tid >> 24), number, begin + report.utc, end + report.utc))
    return pd.DataFrame(rows, columns=["process", "number", "begin", "end"])


def list_launched(reports: Sequence[Report]) -> dict[Process, list[Operation]]:
    """Return the operations of each process; one without a recorded call counts as launched when it begins."""
    found: dict[Process, list[Operation]] = defaultdict(list)
    for index, report in enumerate(reports):
        sent: dict[tuple[int, int], int] = {}
        for begin, tid, correlation in zip(
            report.calls["begin"], report.calls["tid"], report.calls["correlation"], strict=True
        ):
            key = tid >> 24, correlation
            sent[key] = min(begin, sent.get(key, begin))
        for row in report.operations.itertuples():
            launched = sent.get((row.process, row.correlation)) if row.correlation else None
            begin, end = row.begin + report.utc, row.end + report.utc
            own = (begin, end, begin, False) if launched is None else (begin, end, launched + report.utc, True)
            found[index, row.process].append(own)
    return found


class StepTruth:
    """The steps of a job, given by the ranges of its processes: process, number, begin and end (UTC).

    `are_ranges`: whether they are ranges, which must have ended, or reach from launch to launch.
    """

    def __init__(self, reports: Sequence[Report], ranges: pd.DataFrame, *, are_ranges: bool = True) -> None:
        self._are_ranges = are_ranges
        self.operations = list_launched(reports)
        self.ranges: dict[Process, list[tuple[int, int, int]]] = {
            process: sorted(own[["number", "begin", "end"]].itertuples(index=False, name=None))
            for process, own in ranges.groupby("process")
        }
        self.numbers = sorted(set(ranges["number"]))
        ends = {process: self._find_ends(process) for process in self.ranges}
        self.on_gpu = any(found for _, found in ends.values())
        self.host_lengths = [
            max(end - begin for own in self.ranges.values() for number, begin, end in own if number == step)
            for step in self.numbers
        ]
        begins = [min(own[k][1] for own in self.ranges.values()) for k in range(len(self.numbers))]
        if self.on_gpu:
            self.stop = [max(end[k] for end, _ in ends.values()) for k in range(len(self.numbers))]
            self.start = [begins[0], *self.stop[:-1]]
            self.lengths = [stop - start for start, stop in zip(self.start, self.stop, strict=True)]
        else:
            self.stop = [max(own[k][2] for own in self.ranges.values()) for k in range(len(self.numbers))]
            self.start, self.lengths = begins, self.host_lengths
        self.warmup = count_warmup(self.lengths)
        self.counted = self.numbers[self.warmup :]

    def _find_ends(self, process: Process) -> tuple[list[int], bool]:
        """Return when the process ends each step, and whether it launched anything in any."""
        ends, last, found = [], 0, False
        for _, begin, end in self.ranges[process]:
            launched = [
                stop
                for _, stop, sent, is_known in self.operations[process]
                if begin <= sent <= end and (is_known or not self._are_ranges)
            ]
            found |= bool(launched)
            last = max([last, *launched, *([end] if self._are_ranges or not launched else [])])
            ends.append(last)
        return ends, found

    @property
    def window(self) -> tuple[int, int]:
        """From the start of the first step that counts to the end of the last."""
        return self.start[self.warmup], self.stop[-1]

    def get_limits(self, number: int) -> tuple[int, int]:
        k = self.numbers.index(number)
        return self.start[k], self.stop[k]

    def find_step(self, process: Process, time: int) -> int | None:
        """Return the number of the step to which a time of a host belongs: the next range that ends."""
        before = self.ranges[process][0][1] - 1
        for number, _, end in self.ranges[process]:
            if before < time <= end:
                return number
            before = end
        return None

    def counts(self, process: Process, time: int) -> bool:
        """Tell whether what a host did or launched at a time counts."""
        if process not in self.ranges:
            return self.window[0] <= time <= self.window[1]
        return self.find_step(process, time) in self.counted
