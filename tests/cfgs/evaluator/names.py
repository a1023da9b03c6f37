"""Names of Paraver's semantic functions, and the default values of their parameters."""

from __future__ import annotations

Parameters = list[list[float]]
Names = dict[str, Parameters]

LEVELS = ["workload", "appl", "task", "thread", "system", "node", "cpu"]
"""Processes from coarse to fine, then resources, in the order in which Paraver compares them."""

UNITS = {"Nanoseconds": 1.0, "Microseconds": 1e3, "Milliseconds": 1e6, "Seconds": 1e9}
UNITS |= {"Minutes": 6e10, "Hours": 3.6e12, "Days": 8.64e13}


def _make_names(*names: str, parameters: Parameters | None = None) -> Names:
    """Return names with the same default parameters."""
    return dict.fromkeys(names, parameters or [])


_ONE: Parameters = [[1.0]]
_ZERO: Parameters = [[0.0]]

STATE_FUNCTIONS = _make_names("State As Is", "Useful", "State Sign")
STATE_FUNCTIONS |= _make_names("Given State", "In State", "Not In State", "State Record Dur.", parameters=_ONE)
EVENT_FUNCTIONS = _make_names(
    "Last Evt Type", "Last Evt Val", "Last Evt Val w/o Bursts", "Next Evt Type", "Next Evt Val"
)
EVENT_FUNCTIONS |= _make_names("Avg Next Evt Val", "Avg Last Evt Val", "Given Evt Val", "In Evt Val", parameters=_ONE)
EVENT_FUNCTIONS |= _make_names("Not In Evt Val", parameters=_ONE)
EVENT_FUNCTIONS |= _make_names("In Evt Range", parameters=[[0.0], [1.0]])
EVENT_FUNCTIONS |= _make_names("Int. Between Evt", "Event Bytes", "Event Sent Bytes")
COMMUNICATION_FUNCTIONS = _make_names("Last Tag", "Comm Size", "Comm Recv. Partner", "Comm Partner", "Last Send Dur.")
COMMUNICATION_FUNCTIONS |= _make_names("Next Recv Dur.", "Last Send Size", "Send Bytes in Transit")
COMMUNICATION_FUNCTIONS |= _make_names("Send Messages in Transit", "Recv Bytes in Transit", "Recv Messages in Transit")
COMMUNICATION_FUNCTIONS |= _make_names("Recv Negative Messages", "Recv Negative Bytes", "Number Of Sends")
COMMUNICATION_FUNCTIONS |= _make_names("Number Of Send Bytes", "Number Of Receives", "Number Of Receive Bytes")
COMMUNICATION_FUNCTIONS |= _make_names("Send BandWidth", "Recv BandWidth", parameters=_ONE)
OBJECT_FUNCTIONS = _make_names("Application ID", "TaskID", "Thread ID", "Node ID", "Cpu ID")
OBJECT_FUNCTIONS |= _make_names("In Appl ID", "In Task ID", "In Thread ID", "In Node ID", "In Cpu ID", parameters=_ONE)
THREAD_FUNCTIONS = STATE_FUNCTIONS | EVENT_FUNCTIONS | COMMUNICATION_FUNCTIONS | OBJECT_FUNCTIONS

CPU_FUNCTIONS = _make_names("Active Thd", "Active Thd Sign")
CPU_FUNCTIONS |= _make_names("Active Thd Val", "Active Thd Val Sign", parameters=_ONE)

UPPER_FUNCTIONS = _make_names("Adding", "AddingSign", "Average", "Maximum", "Minimum", "Mode", "Changed value")
UPPER_FUNCTIONS |= _make_names("Activity", "In Activity", "Thread i", parameters=_ONE)
UPPER_FUNCTIONS |= _make_names("Add Tasks", parameters=_ZERO)

COMPOSE_FUNCTIONS = _make_names(
    "As Is", "Sign", "1-Sign", "Floor", "Ceil", "Round", "Abs", "Stacked Val", "Nesting level"
)
COMPOSE_FUNCTIONS |= _make_names("Mod", "Mod+1", "Div", "Inverse Div", "Is Equal", "Is Equal (Sign)", parameters=_ONE)
COMPOSE_FUNCTIONS |= _make_names("In Stacked Val", "Timer", parameters=_ONE)
COMPOSE_FUNCTIONS |= _make_names("Prod", "Add", "Subs", "Complement", parameters=_ZERO)
COMPOSE_FUNCTIONS |= _make_names(
    "Select Range", "Select Range [)", "Is In Range", "Is In Range [)", parameters=_ONE + _ZERO
)
COMPOSE_FUNCTIONS |= _make_names("Enumerate", "Accumulate", "Delta", "Burst Time", "Divide by Burst Time", "Begin Time")
COMPOSE_FUNCTIONS |= _make_names("End Time", "Join Bursts", "sin", "cos", "sqrt (abs)", "arc tan")
COMPOSE_FUNCTIONS |= _make_names("LRU Depth", parameters=[[256.0]])
COMPOSE_FUNCTIONS |= _make_names("Translate", parameters=[[]])
COMPOSE_FUNCTIONS |= _make_names("log N", "exp", parameters=[[2.718281828459045]])

OPERATIONS = ["add", "product", "substract", "divide", "maximum", "minimum", "different", "controlled: clear by"]
OPERATIONS += ["controlled: maximum", "controlled: add", "controlled: enumerate", "controlled: average"]

COMMUNICATION_STATISTICS = ["#Sends", "#Receives", "Bytes sent", "Bytes received"]
COMMUNICATION_STATISTICS += [
    f"{kind} bytes {way}" for kind in ("Average", "Minimum", "Maximum") for way in ("sent", "received")
]
STATISTICS = [
    "Time",
    "% Time",
    "% Time Not Zero",
    "% Window Time",
    "# Bursts",
    "% # Bursts",
    "Integral",
    "Average value",
]
STATISTICS += [
    "Maximum",
    "Minimum",
    "Average Burst Time",
    "Stdev Burst Time",
    "Average per Burst",
    "Average value != 0",
]
STATISTICS += ["Average per Burst != 0", "# Bursts != 0", "Sum bursts"]

FILTERS = ["from_obj", "to_obj", "tag_msg", "size_msg", "bw_msg", "evt_type", "evt_value"]
FILTER_FUNCTIONS = ["All", "!=", ">", "<", "=", "None", "[x,y]"]


def get_functions(level: str) -> Names:
    """Return the functions that a level of window_selected_functions or window_compose_functions can have."""
    if level.startswith(("compose_", "topcompose", "extratopcompose")):
        return COMPOSE_FUNCTIONS
    return {"thread": THREAD_FUNCTIONS, "cpu": CPU_FUNCTIONS}.get(level, UPPER_FUNCTIONS)
