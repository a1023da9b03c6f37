"""Says which functions samples of hosts show while GPUs wait for these, and what to record where nothing shows them."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.analysis.gpus.samples import CALLS, CPU, PYTHON
from nsys2prv_ng.paraver.families import GIL_WAIT
from nsys2prv_ng.source_names import CPU_SAMPLES
from nsys2prv_ng.summary.answer import rules
from nsys2prv_ng.summary.answer.case import HALF, LEAST, Case, is_launch_call
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.summary.verdict import Place
from nsys2prv_ng.text.names import quote_name

_FEWEST = 20
"""Fewest samples that say something: the standard error of a share is at most 11 % then (half of 1 / sqrt(20))."""
_FEWEST_OF_ONE = 5
"""Fewest samples of a function that is named: twice the standard error of fewer (sqrt(n)) reaches down to none."""
_LEAST_SHARE = 0.1
"""Least share of a function that is worth a word, as for other places (where.py)."""
_SAMPLED = "sampled"
"""The kind of these places."""
_NAMES = {PYTHON: "Python", CPU: "the CPU"}
"""What was sampled, in words."""
_MOST = 2
"""Most functions. A choice, so that the line stays short."""


def find_functions(case: Case) -> tuple[list[Place], str]:
    """Return the program's functions with most samples while GPUs waited, and their shares; ([], "") without enough.

    Samples of Python are of all time, so that their shares are of the step, as are those of back traces. Samples of a
    CPU are only of running threads.
    """
    samples = [each for gpu in case.summary.gpus for each in gpu.sampled]
    count = sum(each.samples for each in samples)
    if count < _FEWEST or case.losses is None:
        return [], ""
    source = samples[0].source
    weighs = {each: each.ns if source == CALLS else each.samples for each in samples}
    whole = case.losses.host_ns if source == CALLS else count
    functions = sum_by_key((each.function, weighs[each]) for each in samples)
    often = sum_by_key((each.function, each.samples) for each in samples)
    largest = [(name, n) for name, n in functions.most_common(_MOST) if name and n >= _LEAST_SHARE * whole]
    largest = [(name, n) for name, n in largest if often[name] >= _FEWEST_OF_ONE]
    if not largest:
        return [], ""
    idle = 1.0 if source == CPU else case.losses.host_ns / max(case.gpu_ns, 1)
    texts = []
    for name, number in largest:
        called = sum_by_key((each.called, weighs[each]) for each in samples if each.function == name).most_common(1)[0]
        inside = (
            f" (mostly {quote_name(called[0])})" if called[0] not in ("", name) and called[1] > HALF * number else ""
        )
        texts.append(f"{quote_name(name)} {number * idle / whole:.0%}{inside}")
    places = [Place(kind=_SAMPLED, name=name, ns=round(case.losses.host_ns * n / whole)) for name, n in largest]
    of = "the samples meanwhile" if source == CPU else case.whole
    by = f"until they call CUDA ({count:,} calls)" if source == CALLS else f"({count} samples of {_NAMES[source]})"
    return places, f"{', '.join(texts)} of {of} {by}"


def describe_preset(case: Case, places: Sequence[Place]) -> str:
    """Return the preset that shows the functions among places, as a clause; "" without any."""
    if not any(each.kind == _SAMPLED for each in places):
        return ""
    is_cpu = any(each.source == CPU for gpu in case.summary.gpus for each in gpu.sampled)
    return "; functions: " + ("analysis/sampled_while_gpu_idle.cfg" if is_cpu else "basics/sampled_python.cfg")


def list_options(case: Case) -> str:
    """Return the options of nsys that would show what hosts do outside calls while GPUs wait; "" if that is known.

    It is worth knowing if it is most of the host-bound time. Where back traces cause most of it, they are to go.
    """
    if case.is_slowed_by_back_traces:
        return "capture again without --cudabacktrace: back traces take most of the time in which GPUs wait"
    calls, facts = case.host_calls, case.summary.facts
    if calls[""] <= HALF * calls.total() or facts is None or find_functions(case)[0]:
        return ""
    if not rules.runs_python(case):
        if CPU_SAMPLES in facts.sources:
            return ""
        return "to see functions: nsys profile --sample=process-tree --backtrace=dwarf"
    text = "to see functions: nsys profile --python-sampling=true --python-sampling-frequency=1000"
    launches = [call for call in case.summary.calls if is_launch_call(call.name)]
    off_main = sum(call.main_ns for call in launches) < LEAST * sum(call.total_ns for call in launches)
    has_gil = any(call.name == GIL_WAIT for call in case.summary.calls)
    return text + ("; --trace=...,python-gil" if off_main and not has_gil else "")
