"""Numbers of a scaling run: the same program with different numbers of GPUs or processes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from nsys2prv_ng.summary.numbers.efficiency import DeviceEfficiency, HostEfficiency

STRONG, WEAK = "strong", "weak"


@dataclass(frozen=True)
class ScalingRun:
    """A run and its rates; None where a rate does not apply. Rates against the first run can be more than 1."""

    label: str
    nodes: int
    processes: int
    gpus: int
    time_ns: int
    """Median time of a step, or the length of the window."""
    useful_ns: int | None
    """Useful time of all GPUs, or of all main threads where no run has GPUs: of a step on average, or in the window."""
    speedup: float | None
    efficiency: float | None
    """speedup / growth of the GPUs (or main threads) from the first run."""
    global_efficiency: float | None
    """parallel x computation_scalability."""
    computation_scalability: float | None
    parallel: float | None
    """That of `device`, or of `host` where no run has GPUs."""
    device: DeviceEfficiency | None
    host: HostEfficiency | None


@dataclass(frozen=True)
class Scaling:
    """Runs by their number of GPUs, then of processes; the first is the reference of the others."""

    kind: str | None
    """STRONG or WEAK; None where it cannot be found."""
    is_chosen: bool
    """Whether the user said so."""
    rule: str
    """How the kind was found, in words."""
    step_name: str | None
    """NVTX range of the steps that times are of; None where they are of whole windows."""
    runs: list[ScalingRun]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as `json.dumps` takes them."""
        return asdict(self)
