"""A reader of Paraver .cfg files: windows and histograms, with event types and values as numbers of a trace."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from tests.cfgs.evaluator.names import FILTER_FUNCTIONS, FILTERS, LEVELS, OPERATIONS, UNITS, Parameters, get_functions
from tests.trace_reader import Trace

_GRADIENTS = {f"window_in_{name}_mode" for name in ("gradient", "null_gradient", "alternative_gradient")}
_NOT_CODE_COLOUR = _GRADIENTS | {f"window_in_{name}_mode" for name in ("punctual", "fused_lines")}
_OLD_LEVELS = {"ptask": "appl", "topcompose": "topcompose2", "compose1": "topcompose1", "compose2": "topcompose2"}


class RefusedError(ValueError):
    """The file is one that Paraver does not load with this trace, or for which it writes nothing."""


@dataclass
class Function:
    """A semantic function with its parameters."""

    name: str
    parameters: Parameters


@dataclass
class Filter:
    """The filter of a window on events and communications; without numbers, only All lets anything pass."""

    functions: dict[str, str] = field(default_factory=lambda: dict.fromkeys(FILTERS, "All"))
    numbers: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in FILTERS})
    labels: dict[str, list[str]] = field(default_factory=lambda: {"evt_type": [], "evt_value": []})
    logical: bool = True
    physical: bool = False
    both: dict[str, bool] = field(default_factory=lambda: {"fromto": True, "tagsize": True, "typeval": True})
    """Whether the two filters of each pair must both let pass, rather than either."""


@dataclass
class WindowSpec:
    """A window as a file describes it."""

    name: str
    derived: bool
    level: str = "thread"
    unit: float = UNITS["Microseconds"]
    functions: dict[str, Function] = field(default_factory=dict)
    """By level; compose functions are those of compose_LEVEL, topcompose1 and topcompose2."""
    extra: list[Function] = field(default_factory=list)
    """Compose functions above topcompose1, from below."""
    filter: Filter = field(default_factory=Filter)
    operation: str = ""
    parents: list[int] = field(default_factory=list)
    """Indices of windows."""
    finest: str = "thread"
    """The finest level of a derived window: that of its parents."""
    factors: list[float] = field(default_factory=lambda: [1.0, 1.0])
    shifts: list[int] = field(default_factory=lambda: [0, 0])
    code_colour: bool = True
    extra_parameters: int = 0
    """Parameters of `extra` so far, which Paraver takes for the index of the function."""

    def __post_init__(self) -> None:
        for level in LEVELS:
            name = {"thread": "State As Is", "cpu": "Active Thd"}.get(level, "Adding")
            self.functions[level] = make_function(level, name)
            self.functions[f"compose_{level}"] = make_function("compose_", "As Is")
        for level in ("topcompose1", "topcompose2"):
            self.functions[level] = make_function(level, "As Is")


@dataclass
class HistogramSpec:
    """A histogram as a file describes it."""

    name: str = ""
    control: int | None = None
    data: int | None = None
    statistic: str = ""
    minimum: float = 0.0
    maximum: float = 1.0
    delta: float = 1.0
    columns: int | None = None
    fixed_delta: bool = False
    compute_scale: bool = True
    compute_scale_zero: bool = False
    has_limits: bool = False


@dataclass
class Cfg:
    """The windows and histograms of a file."""

    windows: list[WindowSpec]
    histograms: list[HistogramSpec]
    dropped: str = ""
    """Why Paraver drops a histogram and reads no further; Paraver itself reports no reason."""


def make_function(level: str, name: str) -> Function:
    """Return a function of a level with default parameters. Raises RefusedError if the level has no such function."""
    known = get_functions(level)
    if name not in known:
        raise RefusedError(f"unknown function {name} at {level}")
    return Function(name, [list(values) for values in known[name]])


def read_cfg(path: Path, trace: Trace) -> Cfg:
    """Read a .cfg. Raises RefusedError if Paraver refuses it, NotImplementedError for features not supported here."""
    text = path.read_text()
    if not re.search(r"^(#ParaverCFG|ConfigFile\.Version:)", text, re.MULTILINE):
        raise RefusedError(f"{path}: neither #ParaverCFG nor ConfigFile.Version:")
    reader = _Reader(trace)
    dropped = ""
    for number, line in enumerate(text.splitlines(), 1):
        try:
            reader.read(line)
        except RefusedError as error:
            dropped = f"{path}:{number}: {error}"
            if not reader.histograms:
                raise RefusedError(dropped) from None
            reader.histograms.pop()
            break
    return reader.finish(dropped)


class _Reader:
    """A reader of one line after the other, as Paraver does it: a line is about the last window or histogram so far."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.windows: list[WindowSpec] = []
        self.histograms: list[HistogramSpec] = []
        self.name = ""
        self.types = set(trace.events["type"].unique().tolist())
        self.some_types = False
        """Whether any window filters a type that is in the trace, or states explicitly that all or none pass."""

    def read(self, line: str) -> None:
        key, _, text = line.partition(" ")
        if line == "< NEW ANALYZER2D >":
            self.histograms.append(HistogramSpec())
        elif line == "CFG4D_ENABLED":
            raise NotImplementedError(line)
        elif key.startswith("Analyzer"):
            self._read_histogram_line(key, text)
        elif key == "window_name":
            self.name = text
        elif key == "window_type":
            if text not in ("single", "composed"):
                raise RefusedError(f"window_type {text}")
            self.windows.append(WindowSpec(self.name, text == "composed"))
        elif key.startswith("window_") and key != "window_id":
            if not self.windows:
                raise RefusedError(f"{key} before window_type")
            self._read_window_line(key, text.strip(), self.windows[-1])

    def finish(self, dropped: str) -> Cfg:
        if not self.windows:
            raise RefusedError("no window")
        for window in self.windows:
            if not window.derived:
                self._resolve(window)
            elif not window.operation or len(window.parents) != 2:
                raise RefusedError(f"{window.name}: a derived window needs an operation and two windows")
        if not self.some_types:
            raise RefusedError("none of the event types of the filters is in the trace")
        for histogram in self.histograms:
            if histogram.control is None:
                raise RefusedError(f"{histogram.name}: no control window")
            if not histogram.compute_scale and histogram.columns is None:
                histogram.fixed_delta = True
        return Cfg(self.windows, self.histograms, dropped)

    def _read_window_line(self, key: str, text: str, window: WindowSpec) -> None:
        match key:
            case "window_units":
                window.unit = UNITS.get(text, window.unit)
            case "window_level":
                if text not in LEVELS:
                    raise NotImplementedError(f"{key} {text}")
                if not window.derived or LEVELS.index(text) <= LEVELS.index(window.finest):
                    window.level = text
            case "window_operation" if window.derived:
                if text not in OPERATIONS:
                    raise RefusedError(f"unknown operation {text}")
                window.operation = text
            case "window_factors" if window.derived:
                window.factors = [float(word) for word in text.split()]
            case "window_shifts" if window.derived:
                window.shifts = [int(word) for word in text.split()]
            case "window_identifiers" if window.derived:
                window.parents = [int(word) - 1 for word in text.split()]
                if not all(0 <= parent < len(self.windows) - 1 for parent in window.parents):
                    raise RefusedError("a derived window of windows that are not above it")
                window.finest = max((self.windows[parent].level for parent in window.parents), key=LEVELS.index)
                window.level = window.finest
            case "window_selected_functions":
                self._select(window, text)
            case "window_compose_functions":
                _set_composes(window, text)
            case "window_semantic_module":
                _set_parameters(window, text)
            case "window_filter_module" if not window.derived:
                _read_filter_line(window.filter, text)
            case "window_logical_filtered":
                window.filter.logical = text == "true"
            case "window_physical_filtered":
                window.filter.physical = text == "true"
            case "window_comm_fromto" | "window_comm_tagsize" | "window_comm_typeval":
                window.filter.both[key.removeprefix("window_comm_")] = text == "true"
            case "window_noncolor_mode":
                window.code_colour &= text != "false"
            case "window_color_mode":
                window.code_colour &= text not in _NOT_CODE_COLOUR
            case "window_begin_time" | "window_begin_time_relative":
                _require(key, float(text) == 0.0)
            case "window_end_time_relative" | "window_scale_relative":
                _require(key, float(text) == 1.0)
            case "window_stop_time":
                _require(key, float(text) >= self.trace.duration)
            case "window_object":
                selected = re.findall(r"\{([^{}]*)\}", text)[-1:]
                _require(key, set(re.findall(r"\w+", "".join(selected))) <= {"All", "1"})
            case "window_zoom_objects" | "window_intracomms_enabled" | "window_intercomms_enabled":
                _require(key, text == "true")

    def _select(self, window: WindowSpec, text: str) -> None:
        for level, name in _parse_entries(text):
            if level in window.functions:
                window.functions[level] = make_function(level, name)
            elif window.derived:
                raise RefusedError(f"{level} in a derived window")
            elif level in FILTERS:
                if name not in FILTER_FUNCTIONS:
                    raise RefusedError(f"unknown filter {name}")
                window.filter.functions[level] = name
                self.some_types |= level == "evt_type" and name in ("All", "None")

    def _read_histogram_line(self, key: str, text: str) -> None:
        if not self.histograms:
            raise RefusedError(f"{key} before < NEW ANALYZER2D >")
        histogram = self.histograms[-1]
        match key.removeprefix("Analyzer2D.").rstrip(":"):
            case "Name":
                histogram.name = text
            case "ControlWindow":
                histogram.control = self._parse_index(text)
                self._check_pair(histogram.control, histogram.data)
            case "DataWindow":
                histogram.data = self._parse_index(text)
                self._check_pair(histogram.control, histogram.data)
            case "Statistic":
                histogram.statistic = text
            case "AnalysisLimits":
                if text not in ("Alltrace", "Allwindow", "Region"):
                    raise RefusedError(f"{key} {text}")
                histogram.has_limits = True
            case "ComputeYScale":
                histogram.compute_scale = text == "True"
            case "ComputeYScaleZero":
                histogram.compute_scale_zero = text == "True"
            case "Minimum":
                histogram.minimum = float(text)
            case "Maximum":
                histogram.maximum = float(text)
            case "Delta":
                histogram.delta = float(text)
            case "UseFixedDelta":
                histogram.fixed_delta = text == "True"
            case "NumColumns":
                histogram.columns = int(text)
            case "3D_ControlWindow":
                raise NotImplementedError(key)
            case "Objects":
                _require(key, text == "All")

    def _parse_index(self, text: str) -> int:
        index = int(text) - 1
        if not 0 <= index < len(self.windows):
            raise RefusedError(f"no window {text}")
        return index

    def _check_pair(self, control: int | None, data: int | None) -> None:
        if control is None or data is None or control == data:
            return
        control_rank, data_rank = (LEVELS.index(self.windows[index].level) for index in (control, data))
        resource = LEVELS.index("system")
        if data_rank > control_rank or (data_rank >= resource) != (control_rank >= resource):
            raise RefusedError("the data window is of a finer level than the control window")
        if data in self._list_ancestors(control) or control in self._list_ancestors(data):
            raise RefusedError("the data window and the control window are derived one from the other")

    def _list_ancestors(self, index: int) -> set[int]:
        parents = set(self.windows[index].parents)
        return parents.union(*(self._list_ancestors(parent) for parent in parents))

    def _resolve(self, window: WindowSpec) -> None:
        """Turn labels of event types and values into numbers; an unknown label leaves the number that goes with it."""
        wanted = window.filter
        for what, find in (("evt_type", self._find_types), ("evt_value", self._find_values)):
            labels, numbers = wanted.labels[what], wanted.numbers[what]
            if labels and len(labels) != len(numbers):
                raise RefusedError(f"{window.name}: {what} needs as many labels as numbers")
            if labels:
                groups = [find(label) or [number] for number, label in zip(numbers, labels, strict=True)]
                wanted.numbers[what] = [number for group in groups for number in group]
        types = wanted.numbers["evt_type"]
        self.some_types |= bool(self.types.intersection(types))
        if wanted.functions["evt_type"] == "[x,y]" and len(types) >= 2:
            self.some_types |= any(types[0] <= number <= types[1] for number in self.types)

    def _find_types(self, label: str) -> list[float]:
        if label in ("", "Unknown"):
            return []
        if "*" in label:
            pattern = re.compile(".*".join(re.escape(part) for part in label.split("*")))
            return [float(number) for number, text in sorted(self.trace.types.items()) if pattern.fullmatch(text)]
        return [float(number) for number, text in sorted(self.trace.types.items()) if text == label][-1:]

    def _find_values(self, label: str) -> list[float]:
        tables = self.trace.values.values()
        numbers = {float(value) for table in tables for value, text in table.items() if text == label}
        return [] if label in ("", "Unknown") else sorted(numbers)


def _require(key: str, supported: bool) -> None:
    """Raise NotImplementedError with the key if its value is not supported here."""
    if not supported:
        raise NotImplementedError(key)


def _parse_entries(text: str) -> list[tuple[str, str]]:
    """Return the pairs of a list such as {2, {{thread, Useful}, {cpu, Active Thd}}}."""
    match = re.match(r"\{\s*(\d+),\s*\{(.*)\}\s*\}\s*$", text)
    entries = re.findall(r"\{([^,{}]*), ([^}]*)\}", match[2]) if match else []
    if not match or int(match[1]) > len(entries):
        raise RefusedError("not a list of as many functions as it says")
    return entries[: int(match[1])]


def _set_composes(window: WindowSpec, text: str) -> None:
    for old, name in _parse_entries(text):
        level = _OLD_LEVELS.get(old, old)
        if level == "extratopcompose1":
            window.extra.append(make_function(level, name))
            continue
        level = f"compose_{level}" if level in LEVELS else level
        if level not in window.functions:
            raise RefusedError(f"unknown level {old}")
        window.functions[level] = make_function(level, name)


def _set_parameters(window: WindowSpec, text: str) -> None:
    match = re.match(r"(\S+) (.*?) \{\s*(\d+),\s*\{(.*)\}\s*\}\s*$", text)
    if not match:
        raise RefusedError("not the parameters of a function")
    level, name = match[1], match[2]
    words = [part.split() for part in match[4].split(",")]
    values = [[float(word) for word in part[1 : 1 + int(part[0])]] for part in words][: int(match[3])]
    if level != "extratopcompose1":
        if level not in window.functions:
            raise RefusedError(f"unknown level {level}")
        function = window.functions[level]
        if function.name == name:
            if len(values) > len(function.parameters):
                raise RefusedError(f"too many parameters of {name}")
            function.parameters[: len(values)] = values
    elif [function.name for function in window.extra][window.extra_parameters : window.extra_parameters + 1] == [name]:
        for i, value in enumerate(values):
            if window.extra_parameters < len(window.extra):
                window.extra[window.extra_parameters].parameters[i] = value
            window.extra_parameters += 1


def _read_filter_line(wanted: Filter, text: str) -> None:
    what, _, rest = text.partition(" ")
    count, _, rest = rest.partition(" ")
    if what.endswith("_label"):
        wanted.labels[what.removesuffix("_label")] += re.findall(r'"([^"]*)"', rest)[: int(count)]
    elif what in FILTERS:
        wanted.numbers[what] += [float(word) for word in rest.split()[: int(count)]]
