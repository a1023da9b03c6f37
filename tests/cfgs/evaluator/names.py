"""Names of Paraver's semantic functions, and the values that their parameters have where a .cfg gives none."""

from __future__ import annotations

Parameters = list[list[float]]
Names = dict[str, Parameters]

LEVELS = ["workload", "appl", "task", "thread", "system", "node", "cpu"]
"""Processes from coarse to fine, then resources, in the order in which Paraver compares them."""

UNITS = {"Nanoseconds": 1.0, "Microseconds": 1e3, "Milliseconds": 1e6, "Seconds": 1e9}
UNITS |= {"Minutes": 6e10, "Hours": 3.6e12, "Days": 8.64e13}


def _names(*names: str, parameters: Parameters | None = None) -> Names:
    return dict.fromkeys(names, parameters or [])


_ONE: Parameters = [[1.0]]
_ZERO: Parameters = [[0.0]]

STATE_FUNCTIONS = _names("State As Is", "Useful", "State Sign")
STATE_FUNCTIONS |= _names("Given State", "In State", "Not In State", "State Record Dur.", parameters=_ONE)
EVENT_FUNCTIONS = _names("Last Evt Type", "Last Evt Val", "Last Evt Val w/o Bursts", "Next Evt Type", "Next Evt Val")
EVENT_FUNCTIONS |= _names("Avg Next Evt Val", "Avg Last Evt Val", "Given Evt Val", "In Evt Val", parameters=_ONE)
EVENT_FUNCTIONS |= _names("Not In Evt Val", parameters=_ONE)
EVENT_FUNCTIONS |= _names("In Evt Range", parameters=[[0.0], [1.0]])
EVENT_FUNCTIONS |= _names("Int. Between Evt", "Event Bytes", "Event Sent Bytes")
COMMUNICATION_FUNCTIONS = _names("Last Tag", "Comm Size", "Comm Recv. Partner", "Comm Partner", "Last Send Dur.")
COMMUNICATION_FUNCTIONS |= _names("Next Recv Dur.", "Last Send Size", "Send Bytes in Transit")
COMMUNICATION_FUNCTIONS |= _names("Send Messages in Transit", "Recv Bytes in Transit", "Recv Messages in Transit")
COMMUNICATION_FUNCTIONS |= _names("Recv Negative Messages", "Recv Negative Bytes", "Number Of Sends")
COMMUNICATION_FUNCTIONS |= _names("Number Of Send Bytes", "Number Of Receives", "Number Of Receive Bytes")
COMMUNICATION_FUNCTIONS |= _names("Send BandWidth", "Recv BandWidth", parameters=_ONE)
OBJECT_FUNCTIONS = _names("Application ID", "TaskID", "Thread ID", "Node ID", "Cpu ID")
OBJECT_FUNCTIONS |= _names("In Appl ID", "In Task ID", "In Thread ID", "In Node ID", "In Cpu ID", parameters=_ONE)
THREAD_FUNCTIONS = STATE_FUNCTIONS | EVENT_FUNCTIONS | COMMUNICATION_FUNCTIONS | OBJECT_FUNCTIONS

CPU_FUNCTIONS = _names("Active Thd", "Active Thd Sign")
CPU_FUNCTIONS |= _names("Active Thd Val", "Active Thd Val Sign", parameters=_ONE)

UPPER_FUNCTIONS = _names("Adding", "AddingSign", "Average", "Maximum", "Minimum", "Mode", "Changed value")
UPPER_FUNCTIONS |= _names("Activity", "In Activity", "Thread i", parameters=_ONE)
UPPER_FUNCTIONS |= _names("Add Tasks", parameters=_ZERO)

COMPOSE_FUNCTIONS = _names("As Is", "Sign", "1-Sign", "Floor", "Ceil", "Round", "Abs", "Stacked Val", "Nesting level")
COMPOSE_FUNCTIONS |= _names("Mod", "Mod+1", "Div", "Inverse Div", "Is Equal", "Is Equal (Sign)", parameters=_ONE)
COMPOSE_FUNCTIONS |= _names("In Stacked Val", "Timer", parameters=_ONE)
COMPOSE_FUNCTIONS |= _names("Prod", "Add", "Subs", "Complement", parameters=_ZERO)
COMPOSE_FUNCTIONS |= _names("Select Range", "Select Range [)", "Is In Range", "Is In Range [)", parameters=_ONE + _ZERO)
COMPOSE_FUNCTIONS |= _names("Enumerate", "Accumulate", "Delta", "Burst Time", "Divide by Burst Time", "Begin Time")
COMPOSE_FUNCTIONS |= _names("End Time", "Join Bursts", "sin", "cos", "sqrt (abs)", "arc tan")
COMPOSE_FUNCTIONS |= _names("LRU Depth", parameters=[[256.0]])
COMPOSE_FUNCTIONS |= _names("Translate", parameters=[[]])
COMPOSE_FUNCTIONS |= _names("log N", "exp", parameters=[[2.718281828459045]])

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


def functions_of(level: str) -> Names:
    """The functions that a level of window_selected_functions or window_compose_functions can have."""
    if level.startswith(("compose_", "topcompose", "extratopcompose")):
        return COMPOSE_FUNCTIONS
    return {"thread": THREAD_FUNCTIONS, "cpu": CPU_FUNCTIONS}.get(level, UPPER_FUNCTIONS)
