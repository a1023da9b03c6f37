"""Defines the names that a Paraver .cfg may use: functions by level, operations, statistics, keys and their values.

Paraver looks up a function in one table for all levels. It accepts a function of another level, and then ignores it or
crashes. So each level has its own table here, with the number of parameters of each function.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Functions = Mapping[str, int]
"""Functions of a level, and the number of parameters of each."""

COMPOSE: Functions = {
    **dict.fromkeys((
        "As Is", "Sign", "1-Sign", "Floor", "Ceil", "Round", "Abs", "Stacked Val", "Nesting level", "Enumerate",
        "Accumulate", "Delta", "Burst Time", "Divide by Burst Time", "Begin Time", "End Time", "Join Bursts", "sin",
        "cos", "sqrt (abs)", "arc tan",
    ), 0),
    **dict.fromkeys((
        "Mod", "Mod+1", "Div", "Prod", "Inverse Div", "Add", "Subs", "In Stacked Val", "Complement", "Timer",
        "LRU Depth", "log N", "exp", "Is Equal", "Is Equal (Sign)", "Translate",
    ), 1),
    **dict.fromkeys(("Select Range", "Select Range [)", "Is In Range", "Is In Range [)"), 2),
}  # fmt: skip

DERIVED: Functions = dict.fromkeys((
    "add", "product", "substract", "divide", "maximum", "minimum", "different", "controlled: clear by",
    "controlled: maximum", "controlled: add", "controlled: enumerate", "controlled: average",
), 0)  # fmt: skip

CPU: Functions = {"Active Thd": 0, "Active Thd Sign": 0, "Active Thd Val": 1, "Active Thd Val Sign": 1}

NOT_THREAD: Functions = {
    **dict.fromkeys(("Adding", "AddingSign", "Average", "Maximum", "Minimum", "Mode", "Changed value"), 0),
    **dict.fromkeys(("Activity", "In Activity", "Thread i", "Add Tasks"), 1),
}

EVENT: Functions = {
    **dict.fromkeys((
        "Last Evt Type", "Last Evt Val", "Last Evt Val w/o Bursts", "Next Evt Type", "Next Evt Val",
        "Int. Between Evt", "Event Bytes", "Event Sent Bytes",
    ), 0),
    **dict.fromkeys(("Avg Next Evt Val", "Avg Last Evt Val", "Given Evt Val", "In Evt Val", "Not In Evt Val"), 1),
    "In Evt Range": 2,
}  # fmt: skip

THREAD: Functions = {
    **EVENT,
    **dict.fromkeys((
        "State As Is", "Useful", "State Sign", "Last Tag", "Comm Size", "Comm Recv. Partner", "Comm Partner",
        "Last Send Dur.", "Next Recv Dur.", "Last Send Size", "Send Bytes in Transit", "Send Messages in Transit",
        "Recv Bytes in Transit", "Recv Messages in Transit", "Recv Negative Messages", "Recv Negative Bytes",
        "Number Of Sends", "Number Of Send Bytes", "Number Of Receives", "Number Of Receive Bytes", "Application ID",
        "TaskID", "Thread ID", "Node ID", "Cpu ID",
    ), 0),
    **dict.fromkeys((
        "Given State", "In State", "Not In State", "State Record Dur.", "Send BandWidth", "Recv BandWidth",
        "In Appl ID", "In Task ID", "In Thread ID", "In Node ID", "In Cpu ID",
    ), 1),
}  # fmt: skip

WINDOW_LEVELS = ("workload", "appl", "task", "thread", "system", "node", "cpu")
RESOURCE_LEVELS = ("system", "node", "cpu")
"""Levels that a trace without resources does not have."""

ALIASES = {"ptask": "appl", "topcompose": "topcompose2", "compose1": "topcompose1", "compose2": "topcompose2"}
"""Old names of levels that Paraver still accepts."""

FUNCTIONS_OF_LEVEL: Mapping[str, Functions] = {**dict.fromkeys(WINDOW_LEVELS, NOT_THREAD), "thread": THREAD, "cpu": CPU}
COMPOSES_OF_LEVEL: Mapping[str, Functions] = dict.fromkeys(
    (*(f"compose_{level}" for level in WINDOW_LEVELS), "topcompose1", "topcompose2", "extratopcompose1"), COMPOSE
)

FILTER_FUNCTIONS = ("All", "!=", ">", "<", "=", "None", "[x,y]")
FILTERS = ("from_obj", "to_obj", "tag_msg", "size_msg", "bw_msg", "evt_type", "evt_value")

STATISTICS = frozenset((
    "#Sends", "#Receives", "Bytes sent", "Bytes received", "Average bytes sent", "Average bytes received",
    "Minimum bytes sent", "Minimum bytes received", "Maximum bytes sent", "Maximum bytes received",
    "Time", "% Time", "% Time Not Zero", "% Window Time", "# Bursts", "% # Bursts", "Integral", "Average value",
    "Maximum", "Minimum", "Average Burst Time", "Stdev Burst Time", "Average per Burst", "Average value != 0",
    "Average per Burst != 0", "# Bursts != 0", "Sum bursts",
))  # fmt: skip

HISTOGRAM_MARK = "< NEW ANALYZER2D >"
"""The exact line that starts a histogram."""


class Key:
    """The rule for the values of a key: `what` they are in messages, and the regular expression that they match."""

    def __init__(self, what: str, pattern: str) -> None:
        self.what = what
        self.pattern = re.compile(pattern, re.ASCII)


_FLOAT = r"-?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?"
_COLOUR = rf"\{{{_FLOAT}:\d{{1,3}},\d{{1,3}},\d{{1,3}}\}}"
ANY, NUMBER, _WHOLE = Key("text", ".*"), Key("a number", _FLOAT), Key("a whole number", r"\d{1,9}")
_TWO_NUMBERS = Key("two numbers with a blank between them", f"{_FLOAT} {_FLOAT}")
_DRAW_MODE = Key(
    "a draw mode",
    "[0-7]|draw_(last|maximum|minnotzero|random|randnotzero|average|averagenotzero|mode|absolute_m(ax|in)imum)",
)
_SWITCH, _HISTOGRAM_SWITCH = Key("true or false", "true|false"), Key("True or False", "True|False")

WINDOW_KEYS: Mapping[str, Key] = {
    **dict.fromkeys((
        "window_name", "window_id", "window_number_of_row", "window_selected_functions", "window_compose_functions",
        "window_object", "window_semantic_module", "window_filter_module", "window_operation", "window_end_time",
        "cfg4d", "cfg4dlink", "cfg4dstatistic", "cfg4dparam",
    ), ANY),
    **dict.fromkeys((
        "window_position_x", "window_position_y", "window_width", "window_height", "window_pixel_size",
        "window_labels_to_draw", "window_object_axis_position", "window_punctual_color_window", "window_synchronize",
    ), _WHOLE),
    **dict.fromkeys((
        "window_comm_lines_enabled", "window_flags_enabled", "window_noncolor_mode", "window_custom_color_enabled",
        "window_semantic_scale_min_at_zero", "window_open", "window_logical_filtered", "window_physical_filtered",
        "window_intracomms_enabled", "window_intercomms_enabled", "window_comm_fromto", "window_comm_tagsize",
        "window_comm_typeval",
    ), _SWITCH),
    **dict.fromkeys((
        "window_maximum_y", "window_minimum_y", "window_begin_time_relative", "window_end_time_relative",
        "window_scale_relative", "window_begin_time", "window_stop_time",
    ), NUMBER),
    **dict.fromkeys(("window_drawmode", "window_drawmode_rows"), _DRAW_MODE),
    **dict.fromkeys(("window_factors", "window_shifts"), _TWO_NUMBERS),
    "window_compute_y_max": Key("true or false", "(true|false)?"),
    "window_type": Key("single or composed", "single|composed"),
    "window_identifiers": Key("the numbers of two windows", r"\d{1,9} \d{1,9}"),
    "window_zoom_objects": Key("the numbers of two rows", r"\d{1,9} \d{1,9}"),
    "window_color_mode": Key(
        "a colour mode", "window_in_(code|(null_|alternative_)?gradient|punctual|fused_lines)_mode"
    ),
    "window_gradient_function": Key("a gradient function", "gradient_function_(linear|steps|log|exp)"),
    "window_custom_color_palette": Key("a palette {value:red,green,blue},{...}", f"{_COLOUR}(,{_COLOUR})*"),
    "window_units": Key("a unit of time", "(Nano|Micro|Milli)seconds|Seconds|Minutes|Hours|Days"),
    "window_level": Key(f"a level ({', '.join(WINDOW_LEVELS)})", "|".join((*WINDOW_LEVELS, "ptask"))),
}  # fmt: skip

HISTOGRAM_KEYS: Mapping[str, Key] = {f"Analyzer2D.{name}:": rule for name, rule in {
    **dict.fromkeys(("Name", "Accumulator", "UseCustomDelta", "Statistic"), ANY),
    **dict.fromkeys((
        "X", "Y", "Width", "Height", "ControlWindow", "DataWindow", "3D_ControlWindow", "NumColumns", "PixelSize",
        "Synchronize",
    ), _WHOLE),
    **dict.fromkeys((
        "HideCols", "SortCols", "SortReverse", "ComputeYScale", "ComputeYScaleZero", "UseFixedDelta",
        "ComputeGradient", "CodeColor", "ShowOnlyTotals", "ShortHeaderLabels", "AccumulateByControlWindow",
        "RelativeTime", "Color", "SemanticColor", "CalculateAll",
    ), _HISTOGRAM_SWITCH),
    **dict.fromkeys((
        "Minimum", "Maximum", "Delta", "MinimumGradient", "MaximumGradient", "3D_Minimum", "3D_Maximum", "3D_Delta",
        "3D_FixedValue",
    ), NUMBER),
    **dict.fromkeys(("DrawModeObjects", "DrawModeColumns"), _DRAW_MODE),
    "HorizVert": Key("Horizontal or Vertical", "Horizontal|Vertical"),
    "Zoom": Key("Enabled or Disabled", "Enabled|Disabled"),
    "SortCriteria": Key("a way to sort columns", "Average|Total|Maximum|Minimum|Stdev|Avg/Max|Custom"),
    "Parameters": Key("4 and four numbers", f"4( {_FLOAT}){{4}}"),
    "AnalysisLimits": Key("Alltrace, Allwindow or Region", "Alltrace|Allwindow|Region"),
    "Objects": Key("All or numbers of rows: 0,1,2", r"All|\d{1,9}(,\d{1,9})*"),
    "ColorMode": Key("a colour mode of histograms", "window_in_(code|(null_|alternative_)?gradient)_mode"),
}.items()} | {"Analyzer3D.ComputeYScale:": _HISTOGRAM_SWITCH}  # fmt: skip
