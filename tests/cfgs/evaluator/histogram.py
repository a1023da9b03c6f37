"""Paraver's histograms: a statistic of a data window by object and by the value of a control window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tests.cfgs.evaluator.file import HistogramSpec, RefusedError, WindowSpec
from tests.cfgs.evaluator.machine import collect_overlaps, find_scale
from tests.cfgs.evaluator.names import COMMUNICATION_STATISTICS, STATISTICS

if TYPE_CHECKING:
    from tests.cfgs.evaluator.evaluate import Windows

_COLUMNS = 200
"""Columns where Paraver computes the scale, unless its preferences say otherwise."""
_MOST_CELLS = 10_000_000


@dataclass(frozen=True)
class Bins:
    """The columns of a histogram: limits of the values, width, and number."""

    minimum: float
    maximum: float
    delta: float
    count: int

    def find(self, values: np.ndarray) -> np.ndarray:
        """Return the bin of each value; all must be within the limits. The last bin may be wider than the others."""
        with np.errstate(invalid="ignore"):
            place = np.floor((values - self.minimum) / self.delta)
        return np.minimum(np.nan_to_num(place, nan=0.0).astype(np.int64), self.count - 1)  # bins may have no width


@dataclass(frozen=True)
class _Pieces:
    """Overlaps of bursts of the control window with bursts of the data window, and the cell of each."""

    shape: tuple[int, int]
    cell: np.ndarray
    duration: np.ndarray
    control: np.ndarray
    value: np.ndarray

    def sum_cells(self, amount: np.ndarray) -> np.ndarray:
        return np.bincount(self.cell, amount, self.shape[0] * self.shape[1]).reshape(self.shape)

    def compute_row_share(self, amount: np.ndarray) -> np.ndarray:
        cells = self.sum_cells(amount)
        return cells * 100 / cells.sum(axis=1, keepdims=True)

    def find_maximum(self) -> np.ndarray:
        """Return the largest value of each cell, 0 if all are below."""
        cells = np.zeros(self.shape[0] * self.shape[1])
        np.fmax.at(cells, self.cell, self.value)
        return cells.reshape(self.shape)

    def find_minimum(self) -> np.ndarray:
        """Return the least value other than 0 of each cell."""
        cells = np.full(self.shape[0] * self.shape[1], np.inf)
        np.minimum.at(cells, self.cell[self.value != 0], self.value[self.value != 0])
        return np.where(np.isinf(cells), 0.0, cells).reshape(self.shape)


@dataclass(frozen=True)
class Histogram:
    """A histogram of a file with this trace."""

    spec: HistogramSpec
    _windows: Windows

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def cells(self) -> np.ndarray:
        """The statistic, a row for each object and a column for each bin; 0 where no burst is in a cell."""
        return self._cells[0]

    @property
    def is_any(self) -> np.ndarray:
        """Whether any burst is in each cell."""
        return self._cells[1]

    @property
    def frame(self) -> pd.DataFrame:
        """The cells by object (from 0) and the lowest value of each bin."""
        return pd.DataFrame(self.cells, columns=self.bins.minimum + np.arange(self.bins.count) * self.bins.delta)

    @cached_property
    def bins(self) -> Bins:
        spec = self.spec
        minimum, maximum, delta, columns, is_fixed = (
            spec.minimum,
            spec.maximum,
            spec.delta,
            spec.columns,
            spec.fixed_delta,
        )
        if spec.compute_scale:
            minimum, highest, has_zero = self._find_limits()
            if spec.compute_scale_zero and has_zero and minimum > 0:
                minimum = 0.0
            width = highest - minimum
            maximum = highest + width * 0.05
            if not is_fixed and (width == 0 or (self._control.code_colour and width <= 10000)):
                maximum = np.floor(maximum) if width else maximum
                delta, is_fixed = 1.0, True
            elif not is_fixed:
                columns = _COLUMNS
        if not is_fixed:
            assert columns is not None
            return Bins(minimum, maximum, (maximum - minimum) / columns, columns)
        if not delta > 0 or not np.isfinite(maximum - minimum):
            raise NotImplementedError(f"{spec.name}: bins of {delta} from {minimum} to {maximum}")
        count = np.ceil((maximum - minimum) / delta)
        count += delta == 1 and count * delta + minimum <= maximum
        return Bins(minimum, maximum, delta, max(int(count), 1))

    @property
    def _control(self) -> WindowSpec:
        assert self.spec.control is not None
        return self._windows.specs[self.spec.control]

    @property
    def _data(self) -> WindowSpec:
        return self._control if self.spec.data is None else self._windows.specs[self.spec.data]

    def _find_limits(self) -> tuple[float, float, bool]:
        """Return minimum of values other than 0 and maximum of the control window, and whether it has a 0."""
        windows = self._windows
        graph = windows.make_graph()
        nodes = [graph.make_top(self.spec.control, row) for row in range(windows.objects.count(self._control.level))]
        machine = graph.make_machine(windows.records.finish)
        scales = [find_scale(machine, node) for node in nodes]
        lowest = min((minimum for minimum, _, _ in scales if minimum != 0), default=0.0)
        return lowest, max(maximum for _, maximum, _ in scales), any(has_zero for _, _, has_zero in scales)

    def _collect_pieces(self) -> _Pieces:
        """Return the overlaps of control and data within the limits of the bins."""
        windows, control = self._windows, self.spec.control
        data = control if self.spec.data is None else self.spec.data
        rows = range(windows.objects.count(self._control.level))
        if len(rows) * self.bins.count > _MOST_CELLS:
            raise NotImplementedError(f"{self.bins.count} columns")
        graph = windows.make_graph()
        nodes = [(graph.make_top(control, row), graph.make_top(data, self._find_data_row(row))) for row in rows]
        machine = graph.make_machine(windows.records.finish)
        pieces_of_rows = [collect_overlaps(machine, *pair) for pair in nodes]
        row = np.repeat(rows, [len(pieces) for pieces in pieces_of_rows])
        begin, end, by, value = np.concatenate(pieces_of_rows).T
        chosen = ~((by < self.bins.minimum) | (by > self.bins.maximum))
        cell = row[chosen] * self.bins.count + self.bins.find(by[chosen])
        return _Pieces((len(rows), self.bins.count), cell, (end - begin)[chosen], by[chosen], value[chosen])

    def _find_data_row(self, row: int) -> int:
        """Return the object of the data window that Paraver takes, not always the one that the row belongs to."""
        count = self._windows.objects.count
        if count(self._control.level) == count(self._data.level):
            return row
        if self._control.level in ("thread", "cpu"):
            return 0
        raise RefusedError(f"Paraver crashes with data of {self._data.level} by a control of {self._control.level}")

    @cached_property
    def _cells(self) -> tuple[np.ndarray, np.ndarray]:
        spec = self.spec
        if spec.statistic in COMMUNICATION_STATISTICS:
            raise NotImplementedError(spec.statistic)
        if spec.statistic not in STATISTICS:
            raise RefusedError(f"unknown statistic {spec.statistic}")
        if not spec.has_limits:
            raise NotImplementedError("histogram without Analyzer2D.AnalysisLimits")
        pieces = self._collect_pieces()
        is_any = pieces.sum_cells(np.ones(len(pieces.cell))) > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            cells = self._compute_statistic(pieces)
        return np.where(is_any, cells, 0.0), is_any

    def _compute_statistic(self, pieces: _Pieces) -> np.ndarray:
        """Return the statistic of each cell; nan where it divides by 0."""
        one = np.ones(len(pieces.cell))
        duration, value, total = pieces.duration, pieces.value, pieces.sum_cells
        is_value = (value != 0) * one
        unit, data_unit = self._control.unit, self._data.unit
        finish = self._windows.records.finish

        def compute_average_not_zero() -> np.ndarray:
            time = total(duration * is_value)
            return np.where(time > 0, total(value * duration) / time, 0.0)

        def compute_deviation() -> np.ndarray:
            time = duration / unit
            return np.sqrt(np.abs(total(time**2) / total(one) - (total(time) / total(one)) ** 2))

        functions: dict[str, Callable[[], np.ndarray]] = {
            "Time": lambda: total(duration) / unit,
            "% Time": lambda: pieces.compute_row_share(duration),
            "% Time Not Zero": lambda: pieces.compute_row_share(duration * (pieces.control != 0)),
            "% Window Time": lambda: total(duration) * 100 / finish,
            "# Bursts": lambda: total(one),
            "% # Bursts": lambda: pieces.compute_row_share(one),
            "Integral": lambda: total(duration / data_unit * np.abs(value)),
            "Average value": lambda: total(value * duration) / total(duration),
            "Maximum": pieces.find_maximum,
            "Minimum": pieces.find_minimum,
            "Average Burst Time": lambda: total(duration) / unit / total(one),
            "Stdev Burst Time": compute_deviation,
            "Average per Burst": lambda: total(value) / total(one),
            "Average value != 0": compute_average_not_zero,
            "Average per Burst != 0": lambda: total(value) / total(is_value),
            "# Bursts != 0": lambda: total(is_value),
            "Sum bursts": lambda: total(value),
        }
        return functions[self.spec.statistic]()
