"""A small sound .cfg, written by hand, and how to break it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from nsys2prv_ng.paraver.read.label_files import ParaverConfig, PcfEventType
from nsys2prv_ng.paraver.read.prv_reader import TraceHeader
from tests.cfgs.cfg_checker import CfgCheckResult, check_cfg

HEAD = """\
#ParaverCFG
ConfigFile.Version: 3.4
ConfigFile.NumWindows: 3
ConfigFile.BeginDescription
What it shows
# in two lines
ConfigFile.EndDescription

"""

FIRST = """\
################################################################################
< NEW DISPLAYING WINDOW first >
################################################################################
window_name first
window_type single
window_id 1
window_width 600
window_color_mode window_in_code_mode
window_custom_color_palette {0:32,32,32},{1.000000:0,114,178}
window_units Microseconds
window_maximum_y 10
window_minimum_y 0
window_compute_y_max false
window_level thread
window_begin_time_relative 0.0
window_end_time_relative 1.0
window_object appl { 1, { All } }
window_open true
window_drawmode draw_randnotzero
window_selected_functions { 4, { {thread, In Evt Val}, {task, Adding}, {evt_type, All}, {evt_type, =} } }
window_compose_functions { 2, { {compose_thread, Is In Range}, {topcompose1, As Is} } }
window_semantic_module thread In Evt Val { 1, { 2 1 2 } }
window_semantic_module compose_thread Is In Range { 2, { 1 5, 1 0 } }
window_filter_module evt_type 2 9600 9700
window_filter_module evt_type_label 2 "Range" "Bytes"

"""

SECOND = """\
window_name second
window_type single
window_logical_filtered true
window_level task
window_object task { 0, 2, { 1, 0 } }
window_selected_functions { 2, { {thread, State As Is}, {evt_type, None} } }

"""

DERIVED = """\
window_name derived
window_type composed
window_id 3
window_factors 1.000000000000 2.000000000000
window_shifts 0 -1
window_operation product
window_identifiers 1 2
window_level task
window_selected_functions { 4, { {appl, Adding}, {task, Adding}, {node, Adding}, {system, Adding}, } }

"""

HISTOGRAM = """\
< NEW ANALYZER2D >
Analyzer2D.Name: histogram
Analyzer2D.X: 10
Analyzer2D.ControlWindow: 1
Analyzer2D.DataWindow: 2
Analyzer2D.Statistic: % Time
Analyzer2D.CalculateAll: True
Analyzer2D.Parameters: 4 -1.0 1.0 -1.0 1.0
Analyzer2D.AnalysisLimits: Alltrace
Analyzer2D.ComputeYScale: False
Analyzer2D.Minimum: 1.0
Analyzer2D.Maximum: 10.0
Analyzer2D.Delta: 1.0
Analyzer2D.UseFixedDelta: True
Analyzer2D.NumColumns: 10
Analyzer2D.Objects: 0,2
"""

FUNCTIONS = "window_selected_functions { 2, { {thread, %s}, {evt_type, =} } }"

HEADER = TraceHeader(1000, (2, 1), (((2, 1), (1, 2)),))
"""Two nodes with two CPUs and one; an application of two tasks with two threads and one."""
CONFIG = ParaverConfig(
    types={
        9600: PcfEventType(9600, "Range", 1, values={0: "End", 1: "one", 2: "two"}),
        9601: PcfEventType(9601, "Other range", 2, values={0: "End", 3: "one"}),
        9700: PcfEventType(9700, "Bytes", 3),
        9800: PcfEventType(9800, "Never seen", 4),
    }
)
TYPES = frozenset((9600, 9601, 9700))


@dataclass
class CfgText:
    """Lines of a .cfg, numbered from 1 as in messages."""

    lines: list[str] = field(
        default_factory=lambda: ["", *"".join((HEAD, FIRST, SECOND, DERIVED, HISTOGRAM)).splitlines()]
    )

    def find(self, start: str) -> int:
        """Return the number of the first line with a start; `second|...` looks after `window_name second`."""
        after, _, rest = start.rpartition("|")
        first = self.find(f"window_name {after}") if after else 1
        return next(number for number, line in enumerate(self.lines) if number >= first and line.startswith(rest))

    def replace(self, start: str, *new: str) -> CfgText:
        """Replace the line that `find` finds by any number of lines."""
        number = self.find(start)
        self.lines[number : number + 1] = new
        return self

    def insert(self, start: str, *new: str) -> CfgText:
        """Insert lines after the one that `find` finds."""
        return self.replace(start, self.lines[self.find(start)], *new)

    def write(self, folder: Path) -> Path:
        path = folder / "t.cfg"
        path.write_bytes("".join(f"{line}\n" for line in self.lines[1:]).encode("utf-8", "surrogateescape"))
        return path

    def check(self, folder: Path) -> CfgCheckResult:
        """Check the cfg against the trace of this module."""
        return check_cfg(self.write(folder), CONFIG, HEADER, TYPES)


def typed(*filters: str, functions: str = "{evt_type, All}, {evt_type, =}") -> CfgText:
    """Make a cfg of one window with these lines as the filter of its events."""
    text = CfgText()
    del text.lines[text.find("window_name second") :]
    text.replace("ConfigFile.NumWindows", "ConfigFile.NumWindows: 1")
    text.replace("window_filter_module evt_type_label").replace("window_filter_module evt_type ", *filters)
    count = functions.count("{") + 1
    listed = f"window_selected_functions {{ {count}, {{ {{thread, In Evt Val}}, {functions} }} }}".replace(", }", " }")
    return text.replace("window_selected", listed)


def messages(result: CfgCheckResult) -> list[str]:
    return [problem.message for problem in result.problems]


def warned(result: CfgCheckResult) -> list[str]:
    return [warning.message for warning in result.warnings]


def assert_problem(folder: Path, start: str, new: list[str], after: int, message: str) -> None:
    """Replace a line; the only problem is `after` lines after the first new one, and starts with `message`.

    If one line has several problems, bars separate their messages.
    """
    text = CfgText()
    number = text.find(start) + after
    problems = text.replace(start, *new).check(folder).problems
    expected = message.split("|")
    assert len(problems) == len(expected), problems
    for problem, wanted in zip(problems, expected, strict=True):
        assert problem.message.startswith(wanted)
    assert problems[0].line == number
