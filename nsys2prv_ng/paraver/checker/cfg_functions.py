"""Defines the names that a Paraver .cfg may use: semantic functions by level with parameters, operations, statistics.

Paraver looks up a function in one table for all levels. It accepts a function of another level, and then ignores it or
crashes. So each level has its own table here.
"""

from __future__ import annotations

from collections.abc import Mapping

from nsys2prv_ng.light_dataclass import dataclass


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function. With `many` it takes a list of values, otherwise exactly one value."""

    name: str
    many: bool = False


@dataclass(frozen=True)
class SemanticFunction:
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

CPU: Functions = {
    **_plain("Active Thd", "Active Thd Sign"),
    **_list("Values", "Active Thd Val", "Active Thd Val Sign"),
}

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

FUNCTIONS_OF_LEVEL: Mapping[str, Functions] = {
    **dict.fromkeys(WINDOW_LEVELS, NOT_THREAD),
    "thread": THREAD,
    "cpu": CPU,
}

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
