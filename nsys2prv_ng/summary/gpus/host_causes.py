"""Names why hosts launched late, by what they called and by what they launched next.

Causes are asked in the order of HOST_CAUSES, so that each ns of host-bound idle time has one at most. A report without
OS runtime calls shows no waits and no files: what it does not show is not named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from nsys2prv_ng.analysis.gpus.times import FROM_PAGEABLE, FROM_PINNED, HOST, LOADED, TO_PAGEABLE
from nsys2prv_ng.summary.gpus.numbers import Cause, GpuNumbers
from nsys2prv_ng.text.calls import STARTS_PROCESS, WAITS_FOR_DATA, WRITES, explain_call
from nsys2prv_ng.value_class import ValueClass

_LEAST_SAVED = 0.05
"""Least share of calls that write files, and of what precedes copies to pageable memory, of host-bound idle time, for
the two to be a checkpoint (25 % and 71 % in checkpoint-a): programs write logs, and read results back."""


_FROM_HOST = (FROM_PAGEABLE, FROM_PINNED)


class HostCause(ValueClass, kw_only=True):
    """A cause of host-bound idle time: in words, and whether a part of it has the cause."""

    words: str
    applies: Callable[[Cause], bool]


LOADING = HostCause(words="in gaps with kernel loads", applies=lambda part: part.next == LOADED)
STARTING = HostCause(
    words="starting processes or waiting for their end",
    applies=lambda part: STARTS_PROCESS.fullmatch(part.call) is not None,
)
WAITING = HostCause(
    words="waiting for a queue or pipe before copies from the host (loader workers)",
    applies=lambda part: part.next in _FROM_HOST and WAITS_FOR_DATA.fullmatch(part.call) is not None,
)
SAVING = HostCause(
    words="writing files and copying to pageable memory (checkpoints)",
    applies=lambda part: _copies_out(part) or _writes(part),
)
PREPARING = HostCause(
    words="code before copies from the host (preparing data)",
    applies=lambda part: part.next in _FROM_HOST and _works(part.call),
)
HOST_CAUSES = (LOADING, STARTING, WAITING, SAVING, PREPARING)


def _writes(part: Cause) -> bool:
    return WRITES.fullmatch(part.call) is not None


def _copies_out(part: Cause) -> bool:
    return part.next == TO_PAGEABLE


def _works(call: str) -> bool:
    """Return whether a thread was in its own code, or in a call of the OS that does not wait."""
    return not call or explain_call(call).partition(" ")[0] not in ("", "waiting")


class CauseTime(ValueClass):
    """Host-bound idle time with a cause, over all GPUs, in parts."""

    parts: list[Cause]

    @property
    def ns(self) -> int:
        return sum(part.ns for part in self.parts)

    @property
    def gaps(self) -> int:
        """The most gaps in which a thread was in one call: a gap may have several ranges and calls."""
        gaps = Counter[str]()
        for part in self.parts:
            gaps[part.call] += part.gaps if part.call else 0
        return max(gaps.values(), default=0)


def sum_host_causes(gpus: Iterable[GpuNumbers]) -> dict[HostCause, CauseTime]:
    """Return the host-bound idle time of each cause that it has."""
    parts = [part for gpu in gpus for part in gpu.idle_causes or [] if part.cause == HOST]
    least = _LEAST_SAVED * sum(part.ns for part in parts)
    saved = [[part.ns for part in parts if is_one(part)] for is_one in (_writes, _copies_out)]
    saves = all(sum(each) >= least for each in saved)
    found: dict[HostCause, list[Cause]] = {}
    for part in parts:
        cause = next((each for each in HOST_CAUSES if each.applies(part)), None)
        if cause is not None and (cause is not SAVING or saves):
            found.setdefault(cause, []).append(part)
    return {cause: CauseTime(own) for cause, own in found.items()}
