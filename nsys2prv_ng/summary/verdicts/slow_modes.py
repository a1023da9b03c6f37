"""Describes kernels that are slow on some ranks or in some steps."""

from __future__ import annotations

from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.numbers.slow_modes import SlowMode
from nsys2prv_ng.summary.tables.slow_modes import name_steps, name_tasks
from nsys2prv_ng.summary.verdicts.case import HALF
from nsys2prv_ng.text.formatting import count_noun, format_percent, format_time
from nsys2prv_ng.text.names import quote_name

_HINT = "clocks throttled, or another process? compare nvidia-smi -q -d CLOCK,PERFORMANCE"
_NARROW_HINT = "other kernels are as fast as usual: another algorithm, or more data?"


def describe_slow_modes(summary: JobSummary) -> str:
    """Return a sentence on the slow mode that costs most, and the number of others; "" without any."""
    modes = [] if summary.slow_modes is None else [mode for mode in summary.slow_modes.modes if mode.kernels]
    if not modes:
        return ""
    text = _describe(modes[0], summary.tasks > 1)
    return f"{text}; {count_noun(len(modes) - 1, 'more slow mode')}: --details" if len(modes) > 1 else text


def _describe(mode: SlowMode, has_several: bool) -> str:
    count = len(mode.kernels) + mode.more_kernels
    first = quote_name(mode.kernels[0].name)
    what = f"{first} takes"
    if count > 1:
        share = format_percent(mode.kernel_share, 1)
        what = f"{count:,} names and launch shapes of kernels ({share} of kernel time, first {first}) take"
    longer = f"{format_percent(mode.ratio - 1, 1)} longer than {'on other ranks' if mode.all_steps else 'usual'}"
    lost = f"{format_time(mode.lost_ns)} lost ({format_percent(mode.step_share, 1)} of these steps)"
    place = f"{name_tasks(mode)}, {name_steps(mode)}" if has_several else name_steps(mode)
    where = "on that GPU" if len(mode.tasks) == 1 else "on these GPUs"
    # Slow kernels that are most of kernel time speak for the GPU as a whole.
    hint = f"{_HINT} {where}" if mode.kernel_share >= HALF else _NARROW_HINT
    return f"{place}: {what} {longer}, {lost}; {hint}"
