"""Defines the names that a Paraver .cfg may use: functions by level with parameters, operations, statistics, and keys.

Paraver looks up a function in one table for all levels. It accepts a function of another level, and then ignores it or
crashes. So each level has its own table here.

If it cannot read the value of a key, it refuses the file from there, without naming the line. For some keys it ignores
a wrong value. `cfg_lists` parses the lists in braces (functions, objects, filters).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from nsys2prv_ng.value_class import ValueClass


class Parameter(ValueClass):
    """A parameter of a function. With `many` it takes a list of values, otherwise exactly one value."""

    name: str
    many: bool = False


class SemanticFunction(ValueClass):
    """A function of a level. `usable`: whether it makes sense with Paraver's default parameters."""

    parameters: tuple[Parameter, ...] = ()
    usable: bool = True


Functions = Mapping[str, SemanticFunction]


def _plain(*names: str) -> dict[str, SemanticFunction]:
    return dict.fromkeys(names, SemanticFunction())


def _one(parameter: str, *names: str, usable: bool = False) -> dict[str, SemanticFunction]:
    return dict.fromkeys(names, SemanticFunction((Parameter(parameter),), usable))


def _list(parameter: str, *names: str) -> dict[str, SemanticFunction]:
    return dict.fromkeys(names, SemanticFunction((Parameter(parameter, many=True),), usable=False))


_LARGEST_FIRST = SemanticFunction((Parameter("Max value", many=True), Parameter("Min value", many=True)), usable=False)

COMPOSE: Functions = {
    **_plain("As Is", "Sign", "1-Sign", "Floor", "Ceil", "Round", "Abs", "Stacked Val", "Nesting level", "Enumerate"),
    **_plain("Accumulate", "Delta", "Burst Time", "Divide by Burst Time", "Begin Time", "End Time", "Join Bursts"),
    **_plain("sin", "cos", "sqrt (abs)", "arc tan"),
    **_one("Divider", "Mod", "Mod+1", "Div"),
    **_one("Factor", "Prod", "Inverse Div"),
    **_one("Value", "Add", "Subs", "In Stacked Val"),
    **_one("Minuend", "Complement"),
    **_one("Delta time", "Timer"),
    **_one("Stack size", "LRU Depth", usable=True),
    **_one("Base", "log N", "exp", usable=True),
    **_list("Values", "Is Equal", "Is Equal (Sign)"),
    **_list("Translation List", "Translate"),
    **dict.fromkeys(("Select Range", "Select Range [)", "Is In Range", "Is In Range [)"), _LARGEST_FIRST),
}

DERIVED: Functions = _plain(
    "add", "product", "substract", "divide", "maximum", "minimum", "different", "controlled: clear by",
    "controlled: maximum", "controlled: add", "controlled: enumerate", "controlled: average",
)  # fmt: skip

CPU: Functions = {**_plain("Active Thd", "Active Thd Sign"), **_list("Values", "Active Thd Val", "Active Thd Val Sign")}

NOT_THREAD: Functions = {
    **_plain("Adding", "AddingSign", "Average", "Maximum", "Minimum", "Mode", "Changed value"),
    **_list("Values", "Activity", "In Activity"),
    **_one("Object", "Thread i"),
    **_list("Objects", "Add Tasks"),
}

STATE: Functions = {
    **_plain("State As Is", "Useful", "State Sign"),
    **_list("State values", "Given State", "In State", "Not In State", "State Record Dur."),
}

EVENT: Functions = {
    **_plain("Last Evt Type", "Last Evt Val", "Last Evt Val w/o Bursts", "Next Evt Type", "Next Evt Val"),
    **_plain("Int. Between Evt", "Event Bytes", "Event Sent Bytes"),
    **_one("Factor", "Avg Next Evt Val", "Avg Last Evt Val", usable=True),
    **_list("Event values", "Given Evt Val", "In Evt Val", "Not In Evt Val"),
    "In Evt Range": SemanticFunction((Parameter("Min value"), Parameter("Max value")), usable=False),
}

COMMUNICATION: Functions = {
    **_plain("Last Tag", "Comm Size", "Comm Recv. Partner", "Comm Partner", "Last Send Dur.", "Next Recv Dur."),
    **_plain("Last Send Size", "Send Bytes in Transit", "Send Messages in Transit", "Recv Bytes in Transit"),
    **_plain("Recv Messages in Transit", "Recv Negative Messages", "Recv Negative Bytes", "Number Of Sends"),
    **_plain("Number Of Send Bytes", "Number Of Receives", "Number Of Receive Bytes"),
    **_one("Byte Factor", "Send BandWidth", usable=True),
    **_one("Byte factor", "Recv BandWidth", usable=True),
}

OBJECT: Functions = {
    **_plain("Application ID", "TaskID", "Thread ID", "Node ID", "Cpu ID"),
    **_list("Appl ID", "In Appl ID"),
    **_list("Task ID", "In Task ID"),
    **_list("Thread ID", "In Thread ID"),
    **_list("Node ID", "In Node ID"),
    **_list("CPU ID", "In Cpu ID"),
}

THREAD: Functions = {**STATE, **EVENT, **COMMUNICATION, **OBJECT}

PROCESS_LEVELS = ("workload", "appl", "task", "thread")
"""Levels of the process model, coarse ones first."""
RESOURCE_LEVELS = ("system", "node", "cpu")
"""Levels of the resource model, coarse ones first. A trace without resources has none of them."""
WINDOW_LEVELS = (*PROCESS_LEVELS, *RESOURCE_LEVELS)

EXTRA_COMPOSE = "extratopcompose1"
"""A level that can occur many times: each occurrence adds a compose after the others."""

ALIASES = {"ptask": "appl", "topcompose": "topcompose2", "compose1": "topcompose1", "compose2": "topcompose2"}
"""Old names of levels that Paraver still accepts."""

FUNCTIONS_OF_LEVEL: Mapping[str, Functions] = {**dict.fromkeys(WINDOW_LEVELS, NOT_THREAD), "thread": THREAD, "cpu": CPU}

COMPOSES_OF_LEVEL: Mapping[str, Functions] = dict.fromkeys(
    (*(f"compose_{level}" for level in WINDOW_LEVELS), "topcompose1", "topcompose2", EXTRA_COMPOSE), COMPOSE
)

DEFAULT_FUNCTION: Mapping[str, str] = {
    **dict.fromkeys(WINDOW_LEVELS, "Adding"),
    "thread": "State As Is",
    "cpu": "Active Thd",
    **dict.fromkeys(COMPOSES_OF_LEVEL, "As Is"),
}
"""The function of a window at a level if the window chooses none."""

NOT_IN_DERIVED = ("thread", "cpu")
"""Levels at which a derived window has no function: its values come from other windows."""

FILTER_FUNCTIONS = ("All", "!=", ">", "<", "=", "None", "[x,y]")
FILTERS = ("from_obj", "to_obj", "tag_msg", "size_msg", "bw_msg", "evt_type", "evt_value")

STATISTICS = frozenset((
    "#Sends", "#Receives", "Bytes sent", "Bytes received", "Average bytes sent", "Average bytes received",
    "Minimum bytes sent", "Minimum bytes received", "Maximum bytes sent", "Maximum bytes received",
    "Time", "% Time", "% Time Not Zero", "% Window Time", "# Bursts", "% # Bursts", "Integral", "Average value",
    "Maximum", "Minimum", "Average Burst Time", "Stdev Burst Time", "Average per Burst", "Average value != 0",
    "Average per Burst != 0", "# Bursts != 0", "Sum bursts",
))  # fmt: skip


NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)

HISTOGRAM_MARK = "< NEW ANALYZER2D >"
"""The exact line that starts a histogram."""
WINDOW_MARK = re.compile(r"< NEW DISPLAYING WINDOW .*>")
"""A line that Paraver writes in front of a window, and does not read."""

UNITS = ("Nanoseconds", "Microseconds", "Milliseconds", "Seconds", "Minutes", "Hours", "Days")
DRAW_MODES = (
    *(f"draw_{mode}" for mode in ("last", "maximum", "minnotzero", "random", "randnotzero", "average")),
    *(f"draw_{mode}" for mode in ("averagenotzero", "mode", "absolute_maximum", "absolute_minimum")),
)
OLD_DRAW_MODES = tuple("01234567")
HISTOGRAM_COLOURS = tuple(f"window_in_{mode}_mode" for mode in ("code", "gradient", "null_gradient"))
HISTOGRAM_COLOURS += ("window_in_alternative_gradient_mode",)
WINDOW_COLOURS = (*HISTOGRAM_COLOURS, "window_in_punctual_mode", "window_in_fused_lines_mode")
GRADIENTS = tuple(f"gradient_function_{name}" for name in ("linear", "steps", "log", "exp"))
SORT_CRITERIA = ("Average", "Total", "Maximum", "Minimum", "Stdev", "Avg/Max", "Custom")


def is_number(text: str) -> bool:
    """Return whether Paraver reads all of the text as a number (it does not accept infinity)."""
    return NUMBER.fullmatch(text) is not None and math.isfinite(float(text))


class Key(ValueClass):
    """The rule for the value of a key.

    what: the expected value in messages, "X is not {what}". accepts: whether a value is right.
    kept: the effect of a wrong value that Paraver does not refuse: "Paraver {kept}".
    numeric: messages omit the effect of a wrong number, because Paraver reads some of them as other numbers.
    repeated: the key may occur more than once in a window. derived, single: whether these kinds of window use it.
    """

    what: str = ""
    accepts: Callable[[str], bool] = lambda _: True
    kept: str = ""
    numeric: bool = False
    repeated: bool = False
    derived: bool = True
    single: bool = True


def _choice(what: str, *words: str, kept: str = "", single_only: bool = False) -> Key:
    return Key(what, frozenset(words).__contains__, kept, derived=not single_only)


def _matching(what: str, pattern: str, derived_only: bool = False) -> Key:
    expression = re.compile(pattern, re.ASCII)
    return Key(what, lambda text: expression.fullmatch(text) is not None, numeric=True, single=not derived_only)


def _are_numbers(count: int) -> Callable[[str], bool]:
    return lambda text: len(text.split(" ")) == count and all(map(is_number, text.split(" ")))


def _is_size(text: str) -> bool:
    return re.fullmatch(r"\d{1,5}", text, re.ASCII) is not None and int(text) < 2**16


def _is_palette(text: str) -> bool:
    items = re.fullmatch(r"\{[^{}]*\}(,\{[^{}]*\})*", text)
    return items is not None and all(map(_is_colour, text[1:-1].split("},{")))


def _is_colour(text: str) -> bool:
    value, _, colour = text.partition(":")
    parts = colour.split(",")
    return is_number(value) and len(parts) == 3 and all(_is_size(part) and int(part) < 256 for part in parts)


_SWITCH = _choice("true or false", "true", "false")
_FILTER_SWITCH = _choice("true or false", "true", "false", single_only=True)
_SIZE = Key("a whole number from 0 to 65535", _is_size, numeric=True)
_NUMBER = Key("a number", is_number, numeric=True)
_FRACTION = Key("a part of the trace from 0 to 1", lambda text: is_number(text) and 0 <= float(text) <= 1, numeric=True)
_TIME = Key("a time that is not negative", lambda text: is_number(text) and float(text) >= 0, numeric=True)
_COUNT = _matching("a whole number", r"\d{1,9}")
_ID = _matching("the number of a window", r"\d{1,9}")
_DRAW_MODE = _choice("a draw mode", *DRAW_MODES, *OLD_DRAW_MODES, kept="keeps its own")
_LIST = Key(repeated=True)
_ANY = Key()

WINDOW_KEYS: Mapping[str, Key] = {
    **dict.fromkeys(("window_name", "window_id", "window_number_of_row"), _ANY),
    **dict.fromkeys(("window_selected_functions", "window_compose_functions"), _ANY),
    **dict.fromkeys(("window_object", "window_semantic_module"), _LIST),
    **dict.fromkeys(("window_position_x", "window_position_y", "window_width", "window_height"), _SIZE),
    **dict.fromkeys(("window_pixel_size", "window_labels_to_draw", "window_object_axis_position"), _SIZE),
    **dict.fromkeys(("window_comm_lines_enabled", "window_flags_enabled", "window_noncolor_mode"), _SWITCH),
    **dict.fromkeys(("window_custom_color_enabled", "window_semantic_scale_min_at_zero", "window_open"), _SWITCH),
    **dict.fromkeys(("window_logical_filtered", "window_physical_filtered"), _FILTER_SWITCH),
    **dict.fromkeys(("window_intracomms_enabled", "window_intercomms_enabled"), _FILTER_SWITCH),
    **dict.fromkeys(("window_comm_fromto", "window_comm_tagsize", "window_comm_typeval"), _FILTER_SWITCH),
    **dict.fromkeys(("window_maximum_y", "window_minimum_y"), _NUMBER),
    **dict.fromkeys(("window_begin_time_relative", "window_end_time_relative", "window_scale_relative"), _FRACTION),
    **dict.fromkeys(("window_begin_time", "window_stop_time", "window_end_time"), _TIME),
    **dict.fromkeys(("window_drawmode", "window_drawmode_rows"), _DRAW_MODE),
    "window_type": _choice("single or composed", "single", "composed"),
    "window_factors": Key("two numbers with a blank between them", _are_numbers(2), numeric=True, single=False),
    "window_shifts": _matching(
        "two whole numbers with a blank between them", r"-?\d{1,4} -?\d{1,4}", derived_only=True
    ),
    "window_operation": Key(single=False),
    "window_identifiers": _matching("the numbers of two windows", r"\d{1,9} \d{1,9}", derived_only=True),
    "window_color_mode": _choice("a colour mode", *WINDOW_COLOURS, kept="paints each value in its own colour"),
    "window_gradient_function": _choice("a gradient function", *GRADIENTS),
    "window_custom_color_palette": Key(
        "a palette {value:red,green,blue},{...} of colours up to 255", _is_palette, "takes others, or refuses the cfg"
    ),
    "window_units": _choice("a unit of time", *UNITS, kept="takes Microseconds"),
    "window_compute_y_max": _choice("true or false", "true", "false", ""),
    "window_level": _choice(
        f"a level ({', '.join(WINDOW_LEVELS)})", *WINDOW_LEVELS, "ptask", kept="shows nothing, or crashes"
    ),
    "window_zoom_objects": _matching("the numbers of two rows", r"\d{1,9} \d{1,9}"),
    "window_filter_module": Key(repeated=True, derived=False),
    "window_punctual_color_window": _ID,
    "window_synchronize": _COUNT,
}

_BOOLEAN = _choice("True or False", "True", "False")
_COLOUR_SWITCH = _choice("True or False", "True", "False", kept="keeps its own")

HISTOGRAM_KEYS: Mapping[str, Key] = {
    **dict.fromkeys(("Analyzer2D.X:", "Analyzer2D.Y:", "Analyzer2D.Width:", "Analyzer2D.Height:"), _SIZE),
    **dict.fromkeys(("Analyzer2D.ControlWindow:", "Analyzer2D.DataWindow:", "Analyzer2D.3D_ControlWindow:"), _ID),
    **dict.fromkeys(("Analyzer2D.HideCols:", "Analyzer2D.SortCols:", "Analyzer2D.SortReverse:"), _BOOLEAN),
    **dict.fromkeys(("Analyzer2D.ComputeYScale:", "Analyzer2D.ComputeYScaleZero:"), _BOOLEAN),
    **dict.fromkeys(("Analyzer2D.UseFixedDelta:", "Analyzer2D.ComputeGradient:"), _BOOLEAN),
    **dict.fromkeys(("Analyzer2D.CodeColor:", "Analyzer2D.ShowOnlyTotals:", "Analyzer2D.ShortHeaderLabels:"), _BOOLEAN),
    **dict.fromkeys(("Analyzer2D.AccumulateByControlWindow:", "Analyzer2D.RelativeTime:"), _BOOLEAN),
    **dict.fromkeys(("Analyzer2D.Color:", "Analyzer2D.SemanticColor:"), _COLOUR_SWITCH),
    **dict.fromkeys(("Analyzer2D.Minimum:", "Analyzer2D.Maximum:", "Analyzer2D.Delta:"), _NUMBER),
    **dict.fromkeys(("Analyzer2D.MinimumGradient:", "Analyzer2D.MaximumGradient:"), _NUMBER),
    **dict.fromkeys(("Analyzer2D.3D_Minimum:", "Analyzer2D.3D_Maximum:", "Analyzer2D.3D_Delta:"), _NUMBER),
    **dict.fromkeys(("Analyzer2D.DrawModeObjects:", "Analyzer2D.DrawModeColumns:"), _DRAW_MODE),
    **dict.fromkeys(("Analyzer2D.Name:", "Analyzer2D.Accumulator:", "Analyzer2D.UseCustomDelta:"), _ANY),
    "Analyzer2D.3D_FixedValue:": _NUMBER,
    "Analyzer3D.ComputeYScale:": _BOOLEAN,
    "Analyzer2D.Statistic:": _ANY,
    "Analyzer2D.CalculateAll:": _choice("True or False", "True", "False", kept="always takes True"),
    "Analyzer2D.HorizVert:": _choice("Horizontal or Vertical", "Horizontal", "Vertical"),
    "Analyzer2D.Zoom:": _choice("Enabled or Disabled", "Enabled", "Disabled", kept="keeps its own"),
    "Analyzer2D.SortCriteria:": _choice("a way to sort columns", *SORT_CRITERIA),
    "Analyzer2D.Parameters:": Key(
        "4 and four numbers", lambda text: text.startswith("4 ") and _are_numbers(5)(text), numeric=True
    ),
    "Analyzer2D.AnalysisLimits:": _choice("Alltrace, Allwindow or Region", "Alltrace", "Allwindow", "Region"),
    "Analyzer2D.NumColumns:": _COUNT,
    "Analyzer2D.Objects:": Key(
        "All or numbers of rows: 0,1,2",
        lambda text: re.fullmatch(r"All|\d{1,9}(,\d{1,9})*", text, re.ASCII) is not None,
        "takes others, drops the histogram, or crashes",
    ),
    "Analyzer2D.PixelSize:": _SIZE,
    "Analyzer2D.ColorMode:": _choice("a colour mode of histograms", *HISTOGRAM_COLOURS),
    "Analyzer2D.Synchronize:": _COUNT,
}

ALIAS_KEYS: Mapping[str, Key] = {
    "cfg4d": Key("name|alias", lambda text: "|" in text, "makes something else of it", repeated=True),
    "cfg4dlink": Key('group|"name"', lambda text: re.match(r'\d+\|"[^"]*"', text) is not None, repeated=True),
    "cfg4dstatistic": Key("name|alias", lambda text: "|" in text, "makes something else of it", repeated=True),
    "cfg4dparam": Key(
        "level|function|number|alias", lambda text: re.match(r"[^|]*\|[^|]*\|\d+\|", text) is not None, repeated=True
    ),
}
"""Keys of simplified views, in windows and histograms. The names in their values are not checked."""
