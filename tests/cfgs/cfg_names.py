"""Defines the names that a Paraver .cfg may use: functions by level, operations, filters and statistics.

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

NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)
