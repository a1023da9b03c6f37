"""Plans the traces of the sides of a comparison: their files, their common steps, and what to look at."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nsys2prv_ng.comparison.model import Pair, Side, SideTraces
from nsys2prv_ng.text.formatting import make_unique

_UNSAFE = re.compile(r"[^\w.+-]+")
_LONGEST_NAME = 80
_PRESETS = {
    "compute": "analysis/kernel_classes",
    "wait time": "views/per_gpu_waits",
    "data transfer": "analysis/exposed_communication",
    "unclassified NCCL time": "views/per_gpu_waits",
    "exposed copies": "basics/memory_operations",
    "host-bound": "analysis/gpu-gaps",
    "queued": "analysis/queue_delay",
    "in CUDA graphs": "basics/graphs",
    "opaque CUDA graphs": "basics/graphs",
    "in CUDA": "basics/cuda_api",
    "in MPI or imbalance": "basics/mpi",
    "user code": "basics/nvtx",
}
"""Preset that shows a part of the step, by the name of its row up to a colon."""
_EVERYTHING = "views/per_gpu_waits"
_MOST_PRESETS = 3


def name_traces(labels: Sequence[str]) -> list[str]:
    """Return a distinct file name for the trace of each side, with characters that every file system accepts."""
    safe = [_UNSAFE.sub("_", label).strip("._")[:_LONGEST_NAME] or "run" for label in labels]
    return [f"{name}.prv" for name in make_unique(safe)]


def choose_common_steps(sides: Sequence[Side]) -> tuple[int, int] | None:
    """Return the first and last number of the steps after the warm-up that all sides have; None without such steps."""
    names, numbers = set(), []
    for side in sides:
        steps, efficiency = side.summary.steps, side.summary.efficiency
        if steps is None or efficiency is None:
            return None
        names.add(steps.name)
        numbers.append({step.number for step in efficiency.steps})
    common = set.intersection(*numbers)
    return (min(common), max(common)) if common and len(names) == 1 else None


def list_presets(pairs: Sequence[Pair]) -> list[str]:
    """Return at most three presets that show what differs most, to be opened on all traces."""
    rows = sorted((row for pair in pairs for row in pair.rows if row.differs), key=lambda row: -abs(row.difference_ns))
    found = [_PRESETS.get(row.name.split(":")[0]) for row in rows]
    return list(dict.fromkeys([*(preset for preset in found if preset), _EVERYTHING]))[:_MOST_PRESETS]


def describe_traces(traces: SideTraces) -> str:
    """Return a text on the steps of the traces and the presets to open; the caller lists the files after it."""
    first, last = traces.steps or (None, None)
    steps = f"step {first}" if first == last else f"steps {first} to {last}"
    run = "the first capture of each run" if traces.is_first_capture else "each run"
    span = f"all time of {run}, as they have no steps in common" if traces.steps is None else f"{steps} of {run}"
    presets = ", ".join(f"{preset}.cfg" for preset in traces.presets)
    return f"Traces of {span}, with the same numbers for names; open {presets} on each:"
