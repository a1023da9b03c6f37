"""Why tasks were late, as a summary names it."""

from __future__ import annotations

from nsys2prv_ng.paraver import event_types as types

LAUNCH, DEVICE, DEPENDENCY, CALL, UNKNOWN = "launch", "device", "dependency", "call", "unknown"

LATE_REASONS = {
    types.LATE_LAUNCH: LAUNCH,
    types.LATE_DEVICE: DEVICE,
    types.LATE_DEPENDENCY: DEPENDENCY,
    types.LATE_CALL: CALL,
    types.LATE_UNKNOWN: UNKNOWN,
}
"""Names by the values of event type 63000412."""
