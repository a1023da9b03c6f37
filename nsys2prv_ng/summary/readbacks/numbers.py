"""Numbers on where hosts wait for GPUs. Sizes are bytes and times ns, integers."""

from __future__ import annotations

from nsys2prv_ng.value_class import ValueClass


class ReadbackNumbers(ValueClass, kw_only=True):
    """Waits of threads for GPUs in calls of one name, in one range, over all ranks and the steps that numbers cover.

    analysis/gpus/readbacks.py defines them.
    """

    call: str
    range: str
    """Innermost range of the thread, or else of the main thread, when the call began; "" outside of ranges."""
    function: str = ""
    """The program's function that made the call, with its file; "" without a back trace of Python."""
    operation: str
    """The copy that the thread launched last, as "Memcpy device to host"; "" if that was no copy from or to a host."""
    memory: str
    """The kind of host memory of the copy, as "Pageable"; "" if it is not known."""
    count: int
    bytes: int
    wait_ns: int
    """How long threads were in these calls."""
    idle_ns: int
    """How long GPUs were idle that ran dry during these calls, until the thread had launched the next operation."""

    @property
    def lost_ns(self) -> int:
        """How long GPUs were idle for the waits, at most: what hosts did afterwards takes its time in any case."""
        return min(self.idle_ns, self.wait_ns)

    @property
    def reads(self) -> bool:
        """Whether data were copied to the host."""
        return self.operation == "Memcpy device to host"
