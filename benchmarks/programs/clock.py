"""Times the steps of a program: `run(step, warm, timed, recorded)`; without PyTorch, also sync, start and stop.

Warms up, times steps with the profiler shut, then records more within the profiler's window. CAPTURE=whole: nsys
captures the process from its start, and the window opens nothing. QUICK=1: two steps each, to see that a program works.
"""

import os
import statistics
import time


def run(step, warm, timed, recorded, sync=None, start=None, stop=None):
    """Call step(i) for i = 0, 1, ...; print mean and median (ms) of the timed steps, and of the recorded ones."""
    if sync is None:
        import torch

        if torch.cuda.is_available():
            sync, runtime = torch.cuda.synchronize, torch.cuda.cudart()
            start, stop = runtime.cudaProfilerStart, runtime.cudaProfilerStop
        else:
            sync = start = stop = lambda: None
    if os.environ.get("CAPTURE") == "whole":
        start = stop = None
    if os.environ.get("QUICK"):
        warm, timed, recorded = 2, 2, 2
    for i in range(warm):
        step(i)
    _time("timed", step, warm, timed, sync)
    if start:
        start()
    _time("recorded", step, warm + timed, recorded, sync)
    if stop:
        stop()


def _time(what, step, first, count, sync):
    if not count:
        return
    sync()
    times = [time.perf_counter()]
    for i in range(first, first + count):
        step(i)
        times.append(time.perf_counter())
    sync()
    mean = (time.perf_counter() - times[0]) / count * 1e3
    median = statistics.median(b - a for a, b in zip(times, times[1:])) * 1e3
    print(f"TIME {what} steps {count} mean {mean:.3f} median_host {median:.3f} ms", flush=True)
