"""The loop that every capture program runs: warm-up, measured steps, and the same steps again while nsys captures."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

WARM_UP = 4
STEPS = 14
DEVICE = "cuda"


@contextmanager
def nvtx_range(name: str) -> Iterator[None]:
    """Show a part of the program in the report."""
    torch.cuda.nvtx.range_push(name)
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()


def compute_on_host(milliseconds: float) -> None:
    """Keep this thread busy in Python, as a slow data loader does."""
    end = time.perf_counter() + milliseconds / 1000
    while time.perf_counter() < end:
        sum(range(500))


def run_steps(step: Callable[[int], None], meet: Callable[[str], None]) -> float:
    """Run the steps; return milliseconds a step, from when all ranks start until this one's GPU has ended its work."""
    torch.cuda.synchronize()
    meet("start")
    begin = time.perf_counter()
    for number in range(STEPS):
        with nvtx_range(f"step {number}"):
            step(number)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1000 / STEPS


def run_and_capture(name: str, rank: int, step: Callable[[int], None], meet: Callable[[str], None]) -> None:
    """Warm up, run the steps untraced, and run them again between cudaProfilerStart and cudaProfilerStop.

    `meet(what)` returns when all ranks have called it; it uses no GPU, and so leaves nothing in the report.
    """
    for number in range(WARM_UP):
        step(number)
    untraced = run_steps(step, meet)
    torch.cuda.cudart().cudaProfilerStart()
    traced = run_steps(step, meet)
    meet("end")
    torch.cuda.cudart().cudaProfilerStop()
    print(f"MEASURED {name} rank {rank}: {untraced:.3f} ms a step untraced, {traced:.3f} ms traced", flush=True)
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}", file=sys.stderr)
