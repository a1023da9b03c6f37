"""Reasons why tasks were late: the labels of event type 63000412 in the trace."""

from __future__ import annotations

from nsys2prv_ng.paraver import event_types as types

LAUNCH = types.LATE_REASONS[types.LATE_LAUNCH]
DEVICE = types.LATE_REASONS[types.LATE_DEVICE]
DEPENDENCY = types.LATE_REASONS[types.LATE_DEPENDENCY]
CALL = types.LATE_REASONS[types.LATE_CALL]
UNKNOWN = types.LATE_REASONS[types.LATE_UNKNOWN]
NOT_SELECTED = "not selected"
"""The reason is on ranks, or in time, that the user did not choose. The trace shows it as unknown."""

ON_HOST = LAUNCH, CALL
