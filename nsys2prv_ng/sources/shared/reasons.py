"""Defines why an event of a report is not in the trace: every reason and its kind, and which times cannot be shown.

A reason is a text, as the account of a translation lists it. Its kind tells whether something is lost, and gives the
column of the account. Reasons are defined here only, so that each of them has a kind, and so that a text that comes
from a file, as that of a shard, has one too.
"""

from __future__ import annotations

from typing import Literal, NewType

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.paraver import event_types, families
from nsys2prv_ng.paraver.model import LONGEST_TRACE_NS
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.export_settings import BLOBS_OPTION, FARTHEST, JSON_OPTION
from nsys2prv_ng.text.formatting import format_duration, format_time

Reason = NewType("Reason", str)

Kind = Literal["merged", "outside", "not_selected", "not_applicable", "lost"]
"""What became of an event without a place of its own in the trace.

merged: another event of the trace shows it. outside: it lies outside the capture, the chosen time or the given reports.
not_selected: an option or its default excludes it. not_applicable: there is nothing to show. lost: the trace should
show it, but the report has too little about it, or Paraver cannot show it.
"""

KIND_WORDS: dict[Kind, str] = {
    "merged": "merged", "outside": "outside", "not_selected": "not selected", "not_applicable": "not applicable",
    "lost": "dropped",
}  # fmt: skip
"""The words for each kind in the account of a translation, in the order of its columns."""

_KIND_OF: dict[str, Kind] = {}
"""Kind by the text of a reason."""
_KIND_OF_START: dict[str, Kind] = {}
"""Kind by the start of a text whose end varies."""


def find_kind(text: str) -> Kind:
    """Return the kind of a reason. A text that is not defined here, as of a damaged shard, counts as a loss."""
    if text in _KIND_OF:
        return _KIND_OF[text]
    return next((kind for start, kind in _KIND_OF_START.items() if text.startswith(start)), "lost")


def list_reasons() -> tuple[set[str], set[str]]:
    """Return the texts of all reasons that are fixed, and how the others start."""
    return set(_KIND_OF), set(_KIND_OF_START)


def _define(kind: Kind, text: str) -> Reason:
    _KIND_OF[text] = kind
    return Reason(text)


def _define_start(kind: Kind, start: str) -> str:
    _KIND_OF_START[start] = kind
    return start


# ---- merged: another event of the trace shows it ---------------------------------------------------------------------

SAME_CALL = _define("merged", "merged into another row of the same call")
SAME_TIME = _define("merged", "merged into the next change at the same time, nothing is lost")
SAME_LAUNCH = _define("merged", "later operation of the same launch and stream")
REPETITION = _define("merged", "another value of its time and metric follows")
REPEATED = _define("merged", "duplicate sample: another report of this node covers that time")
UNCHANGED = _define("merged", "unchanged")
SWITCH_STEP = _define("merged", "a step of the switch itself")
IN_STEPS = _define("merged", "shown in steps of time, as overview")

# ---- outside: before or after what the trace covers, or in no report -------------------------------------------------

OUTSIDE_TRACE = _define("outside", "outside the time of the trace")
OUTSIDE_CHOSEN_TIME = _define("outside", "outside the chosen time")
AFTER_ALL_ELSE = _define("outside", "on an idle thread after all else has ended")
BEFORE_CAPTURE = _define("outside", "before the capture: only part of the memory in use")
EARLY_REQUEST = _define("outside", "its request was made before the capture")
PARTNER_NOT_HERE = _define("outside", "its partner is a rank without a report")

# ---- not selected: an option or its default excludes it --------------------------------------------------------------

NOT_SELECTED = _define("not_selected", "outside the selected ranks and GPUs")
"""The event is on a row that the user did not select."""
OTHER_DOMAIN = _define("not_selected", "outside the selected NVTX domains")
OTHER_METRIC = _define("not_selected", "none of its metrics was chosen")
BETWEEN_LIMITS = _define("not_selected", "sample between the first and the last")
OTHER_OPERATION = _define("not_selected", "its kernel or call is not selected")
TOO_SHORT = _define("not_selected", "shorter than the selected minimum")
ON_FOLDED_THREAD = _define("not_selected", "on a folded thread")
NO_LINE = _define("not_selected", "wait shorter than the shortest with a line")
NOT_IN_OVERVIEW = _define("not_selected", "not shown in an overview")
STEP_TOO_MANY = _define("not_selected", "more steps than an overview takes")
_SHORT_CALL = _define_start("not_selected", "shorter than the minimum of ")
_NO_LONG_WAIT = _define_start("not_selected", "without a wait of ")


def name_short_call(shortest: int) -> Reason:
    """Return the reason of calls that last less than `shortest` (ns)."""
    return Reason(f"{_SHORT_CALL}{format_duration(shortest)}")


def name_no_long_wait(shortest: int) -> Reason:
    """Return the reason of kernels and calls that waited less than `shortest` (ns), the least of an overview."""
    return Reason(f"{_NO_LONG_WAIT}{format_time(shortest)} in an overview")


# ---- not applicable: there is nothing to show ------------------------------------------------------------------------

OTHER_PROGRAM = _define("not_applicable", "its process made no traced call")
"""The process has no row, since it is none of the job's: the node ran it besides."""
TO_NOBODY = _define("not_applicable", "to or from MPI_PROC_NULL")
NOT_SYNCHRONISED = _define("not_applicable", "the operation did not synchronise its ranks")
WITHIN_CLOCK_ERROR = _define("not_applicable", "wait within the clock error: counted as transfer")
NO_WAIT = _define("not_applicable", "did not wait for a rank")
NO_NCCL_CALL = _define(
    "not_applicable", "kernel launched outside of NCCL's calls, as by a CUDA graph: no call to take a payload from"
)

# ---- lost: columns of the report are empty or damaged ----------------------------------------------------------------

NO_THREAD = _define("lost", "no thread")
NO_PROCESS = _define("lost", "no process")
NO_DEVICE = _define("lost", "no device")
NO_GPU = _define("lost", "no GPU")
NO_CORE = _define("lost", "no core")
NO_PROCESS_OR_DEVICE = _define("lost", "no process or device")
NO_STREAM = _define("lost", "no process, device, context or stream")
NO_CONTEXT = _define("lost", "no context, GPU or time")
NO_TIME = _define("lost", "no time")
NO_VALUE = _define("lost", "no value")
NO_VALUES = _define("lost", "no values")
NO_BYTES = _define("lost", "no number of bytes")
NO_LIMITS = _define("lost", "no start or end")
BACKWARD = _define("lost", "ends before it starts")
ZERO_TIME = _define("lost", "no time (start and end are 0)")
AFTER_CAPTURE = _define("lost", "ends too long after the end of the capture to be true")
BEFORE_LAUNCH = _define("lost", "starts before the call that launched it")
IMPOSSIBLE = (AFTER_CAPTURE, BEFORE_LAUNCH)
"""Reasons of events whose times show that their records are corrupt."""
NO_DIRECTION = _define("lost", "neither in nor out")
NO_MEMORY_CHANGE = _define("lost", "neither allocation nor free")
UNKNOWN_ENGINE = _define("lost", "an engine of unknown kind")
NO_METRIC = _define("lost", "no metric: an event of ftrace, a hypervisor or ETW")
_UNKNOWN_EVENT = _define_start("lost", "unknown event type ")


def name_unknown_event(event_type: int) -> Reason:
    """Return the reason of NVTX events whose type no known version of nsys writes."""
    return Reason(f"{_UNKNOWN_EVENT}{event_type}")


# ---- lost: Paraver cannot show it ------------------------------------------------------------------------------------

TOO_LONG = _define("lost", "longer than Paraver can show")
TOO_LARGE = _define("lost", "too large for the trace")
OVERLAPS_CALL = _define("lost", "partly overlaps another call on its thread")
"""Calls of a thread nest. A call that starts within another and ends after it cannot be shown on the same row."""
OVERLAPS_RANGE = _define("lost", "partly overlaps another range of its thread and domain")
OVERLAPS_TURN = _define("lost", "partly overlaps another turn on its GPU")
NO_RANGE_LANE = _define("lost", f"more than {families.NVTX_LANES} start/end ranges open on its thread")
NO_GPU_RANGE_LANE = _define("lost", f"more than {families.NVTX_GPU_LANES} lanes needed on its stream")
NO_TRANSFER_LANE = _define("lost", f"more than {event_types.UCX_LANES} transfers at a time on its thread")
NO_VIDEO_LANE = _define("lost", f"more than {event_types.VIDEO_LANES} works of a kind of engine at a time")

# ---- lost: the reports lack what it belongs to -----------------------------------------------------------------------

NO_ROW = _define("lost", "its thread made no traced call")
"""The thread has no row, but it is of a process of the job."""
NO_CALL = _define("lost", "no call recorded with its correlation id")
NO_OPERATION = _define("lost", "its operation was dropped")
NO_ALLOCATION = _define("lost", "frees memory that the report does not show as allocated")
NO_CORE_END = _define("lost", "no end (put on a core twice)")
NO_CORE_START = _define("lost", "no start (taken off a core without having been put on one)")
NO_TURN_END = _define("lost", "start of a turn without its end")
NO_TURN_START = _define("lost", "end of a turn without its start")
ONLY_JSON = _define("lost", "only as JSON in this export; export the report with nsys 2024.2 or newer")
"""Why samples of an old export are not read."""

# ---- lost: communication without its other side or its payload -------------------------------------------------------

_NO_PAYLOAD = "call without payload: the export has none"
PAYLOAD_NOT_EXPORTED = {
    option: _define("lost", _NO_PAYLOAD + (f", make it with nsys export {option}" if option else ""))
    for option in ("", JSON_OPTION, BLOBS_OPTION)
}
"""Why a call lacks its payload, by the option of an export that would contain it; no option if none would."""
PAYLOAD_UNKNOWN = _define("lost", "call with a payload that is not understood")
KERNEL_LOST = _define("lost", "kernel that was dropped")
KERNEL_WITHOUT_LAUNCH = _define("lost", f"kernel: {NO_CALL}")
KERNEL_WITHOUT_PAYLOAD = _define("lost", "kernel whose calls have no payload")
RANK_UNKNOWN = _define("lost", "rank of its process in the communicator is unknown")
PEER_UNKNOWN = _define("lost", "task of its peer is unknown")
SEND_ALONE = _define("lost", "send without its receive in the reports")
RECEIVE_ALONE = _define("lost", "receive without its send in the reports")
NO_PARTNER = _define("lost", "its partner is not recorded")
NO_COMMUNICATOR = _define("lost", "its communicator is not recorded")
NO_TAG = _define("lost", "its tag is not recorded")
NO_RECEIVE = _define("lost", "sent, and no receive was recorded")
NO_RECEIVE_END = _define("lost", "sent, and the end of its receive was not recorded")
NO_SEND = _define("lost", "received, and no send was recorded")
SEVERAL_SENDS = _define("lost", "received from any source, with several candidates")
MAY_BE_TAKEN = _define("lost", "may have been taken by a receive with a wildcard")
UNEQUAL_ENDS = _define("lost", "unequal numbers of sends and receives in a capture that began after MPI_Init")

# ---- lost: waits that cannot be told from transfer -------------------------------------------------------------------

MEMBER_MISSING = _define("lost", "no report shows what a member of the operation did")
ROLES_UNKNOWN = _define("lost", "root or kind of the operation is not recorded")
COMMUNICATORS_ALIKE = _define("lost", "communicators cannot be told apart without payload")
COUNTERPART_MISSING = _define("lost", "no report shows its counterpart")
NOT_ALIGNED = _define("lost", "the clocks of the reports are not aligned")


# ---- times that no trace can show ------------------------------------------------------------------------------------


_FAR = FARTHEST - 2 * LONGEST_TRACE_NS
"""Times (ns) above this limit or below its negative are damaged: they could overflow on another clock."""


_LATE = 2**62
"""Is added to impossible times, so that all that reads them knows them. They stay distinct and in order."""
_LATEST = 2**61
"""Later times (ns), 73 years after the start or, if an export was normalised, after 1970, are damaged otherwise."""


def move_late_times(time: IntArray, latest: int) -> IntArray:
    """Return times (ns) of which those after `latest` are marked as impossible, for `is_late`."""
    return np.where((time > latest) & (time < _LATEST), time + _LATE, time) if time.max(initial=0) > latest else time


def is_late(time: IntArray) -> BoolArray:
    """Return a mask of the n times that were marked as too late after the end of the capture."""
    return (time > _LATE) & (time < _LATE + _LATEST)


def find_unsound_points(time: IntArray) -> dict[Reason, BoolArray]:
    """Return masks of the n points (ns) that cannot be shown, by reason; the masks do not overlap."""
    late = is_late(time)
    return {AFTER_CAPTURE: late, NO_TIME: ~late & lacks_time(time)}


def lacks_time(time: IntArray) -> BoolArray:
    """Return a mask of the n points that cannot be shown, because their time (ns) is missing or damaged."""
    return (time > _FAR) | (time < -_FAR)  # NULL is


def find_unsound_times(begin: IntArray, end: IntArray) -> dict[Reason, BoolArray]:
    """Return masks of the n intervals that cannot be shown, by reason; the masks do not overlap. Times are in ns."""
    late = is_late(begin) | is_late(end)
    null = ~late & ((begin == NULL) | (end == NULL))
    backward = ~null & (end < begin)
    zero = ~null & (begin == 0) & (end == 0)
    # The comparison adds to the start, so that nothing overflows.
    endless = ~null & ~late & (lacks_time(begin) | (end > np.minimum(begin, _FAR) + LONGEST_TRACE_NS))
    return {
        AFTER_CAPTURE: late,
        TOO_LONG: endless & ~backward,
        NO_LIMITS: null,
        BACKWARD: backward & ~late,
        ZERO_TIME: zero,
    }
