"""Why tasks were late, in the words of the trace: the labels of event type 63000412."""

from __future__ import annotations

from nsys2prv_ng.paraver import event_types as types

LAUNCH = types.LATE_REASONS[types.LATE_LAUNCH]
DEVICE = types.LATE_REASONS[types.LATE_DEVICE]
DEPENDENCY = types.LATE_REASONS[types.LATE_DEPENDENCY]
CALL = types.LATE_REASONS[types.LATE_CALL]
UNKNOWN = types.LATE_REASONS[types.LATE_UNKNOWN]
NOT_SELECTED = "not selected"
"""What shows why is on ranks or in time that the user did not choose. A trace says that it is unknown."""

ON_HOST = LAUNCH, CALL
