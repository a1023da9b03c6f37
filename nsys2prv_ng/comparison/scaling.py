"""Compares runs of different sizes as POP does: speedup, efficiency, and the factors of the efficiency.

Runs are ordered by their number of GPUs D, then of processes; the first run is the reference. If all runs have steps of
the same name, T is the median time of a step, and U the useful time of all GPUs in the steps / the number of steps.
Otherwise T is the length of the window, and U the useful time in it. NCCL is communication. With g = D_n / D_ref:

- Strong scaling (the same work in all): speedup = T_ref / T_n, computation scalability = U_ref / U_n.
- Weak scaling (work that grows with D): both are multiplied by g. So the speedup refers to the work, and g is ideal.
- efficiency = speedup / g; global efficiency = parallel efficiency x computation scalability.

Parallel efficiency covers the time from the first step to the last, not the median step. So efficiency equals the
ratio of global efficiencies only if steps are alike and follow each other closely.

Scaling is weak if U of the largest run is more than sqrt(g) times U of the reference: ideal is 1 for strong and g for
weak scaling, and sqrt(g) is the geometric mean of both. For g = 2 this is close to the limit of TALP-Pages
(strong if U_n / U_ref / g < 0.75, with instructions for U), but it applies to every g. If only some runs have steps, or
their steps differ, the kind cannot be determined, because the windows contain different work.

If no run has GPUs, main threads replace GPUs. Runs with and without GPUs, or with different numbers of GPUs for each
process, follow different programming models: unless the user chooses the kind of scaling, the rates that compare work
do not apply (as in BasicAnalysis).
Sources: POP; BasicAnalysis 2026.10 (scaling, comparison of programming models); TALP-Pages 3.6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from nsys2prv_ng.comparison.comparability import count_gpus, count_processes
from nsys2prv_ng.comparison.model import STRONG, WEAK, Comparability, Scaling, ScalingRun, Side
from nsys2prv_ng.comparison.work import match_steps
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.report.diagnostics import REMEDY
from nsys2prv_ng.summary.efficiency.numbers import DeviceEfficiency, EfficiencyTrees, HostEfficiency, WindowEfficiency
from nsys2prv_ng.summary.efficiency.table import DEVICE_TERMS, HOST_TERMS, applies, list_device_scores, list_scores
from nsys2prv_ng.summary.efficiency.windows import find_most_compute
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.text.formatting import cut_names
from nsys2prv_ng.text.grid import Cell, Column, Count, Grid, Ns, Score, Term, make_columns
from nsys2prv_ng.text.layout import format_grid, wrap
from nsys2prv_ng.text.names import clean_name, quote_name

KINDS = (STRONG, WEAK)
_UNKNOWN = "whether it is strong or weak does not show, say which"


class _Measured(NamedTuple):
    """Measurements of a run. `units`: GPUs, or main threads if no run has GPUs. `useful`: useful time of all (ns).

    `hides_compute`: whether the compute time of the GPUs is not known.
    """

    side: Side
    processes: int
    gpus: int
    units: int
    time: int
    useful: Fraction | None
    hides_compute: bool
    device: DeviceEfficiency | None
    host: HostEfficiency | None


def make_scaling(sides: Sequence[Side], comparability: Comparability, scaling: str | None = None) -> Scaling | None:
    """Return how runs scale; None if all have the same size, or if a finding on their comparability prevents it.

    `scaling`: "strong" or "weak", if the user knows. Raises UsageError for another word.
    """
    if scaling is not None and scaling not in KINDS:
        raise UsageError(f"write {' or '.join(KINDS)}", parameter="scaling", value=scaling)
    if len({_get_size(side.summary) for side in sides}) < 2 or "scaling" in comparability.prevented:
        return None
    step_name = _find_common_steps(sides)
    on_gpus = any(count_gpus(side.summary) for side in sides)
    runs = [_measure(side, by_step=step_name is not None, on_gpus=on_gpus) for side in sides]
    runs.sort(key=lambda run: (run.gpus, run.processes))
    first, last = runs[0], runs[-1]
    alike = all(run.gpus * first.processes == first.gpus * run.processes for run in runs)  # GPUs per process
    kind, rule = scaling, ""
    if kind is None and alike:
        is_known = step_name is not None or all(_has_no_steps(side.summary) for side in sides)
        kind, rule = _detect(first, last, "GPU" if on_gpus else "main thread") if is_known else (None, _UNKNOWN)
    notes = ["kernels of NCCL are communication"] if on_gpus else []
    if on_gpus and any(run.hides_compute for run in runs):
        notes.append(
            "CUDA graphs that were traced as a whole may compute: useful time is not known, and the efficiencies of "
            f"GPUs count them as communication; {REMEDY}"
        )
    if kind is None and not alike:
        notes.append("the runs differ in GPUs per process: rates that compare their work do not apply")
    if step_name is None:
        lacking = any(_has_no_steps(side.summary) for side in sides)
        why = "not every run has steps" if lacking else "the steps of the runs are not the same work"
        notes.append(f"times are of whole windows, which may hold different work: {why}")
    return Scaling(
        kind=kind,
        is_chosen=scaling is not None,
        rule=rule,
        step_name=step_name,
        runs=[_rate(run, first, kind, on_gpus=on_gpus) for run in runs],
        notes=notes,
    )


# ---- what a run is ---------------------------------------------------------------------------------------------------


def _get_size(summary: JobSummary) -> tuple[int, int]:
    return count_gpus(summary), count_processes(summary)


def _find_common_steps(sides: Sequence[Side]) -> str | None:
    """Return the name of the steps of all sides; None if a side has no steps, or steps of other work."""
    found = [side.summary for side in sides if not _has_no_steps(side.summary)]
    alike = len(found) == len(sides) and all(match_steps(found[0], each).sizes == (1, 1) for each in found[1:])
    return found[0].steps.name if alike and found[0].steps is not None else None


def _has_no_steps(summary: JobSummary) -> bool:
    return summary.steps is None or summary.efficiency is None or summary.efficiency.in_steps is None


def _measure(side: Side, *, by_step: bool, on_gpus: bool) -> _Measured:
    summary = side.summary
    efficiency, steps, count = summary.efficiency, summary.steps, 1
    window: WindowEfficiency | None = efficiency
    time = summary.duration_ns if efficiency is None else efficiency.length_ns
    if by_step and efficiency is not None and steps is not None:
        window, time, count = efficiency.in_steps, steps.median_ns, steps.count
    trees = EfficiencyTrees(device=None, host=None) if window is None else window.nccl_as_communication
    host = trees.host
    useful, units = None, count_gpus(summary)
    hides_compute = window is not None and find_most_compute(window) is not None
    if on_gpus and window is not None and window.losses is not None and not hides_compute:
        useful = Fraction(window.losses.compute_ns, count)
    elif not on_gpus and window is not None and host is not None:
        units = window.threads
        useful = Fraction(round(host.parallel * units * window.length_ns), count)
    gpus, processes = _get_size(summary)
    return _Measured(side, processes, gpus, units, time, useful, hides_compute, trees.device, host)


# ---- rates -----------------------------------------------------------------------------------------------------------


def _detect(first: _Measured, last: _Measured, unit: str) -> tuple[str | None, str]:
    """Return (kind of scaling, why); (None, why not) if the kind cannot be determined."""
    if not first.useful or not last.useful or last.units <= first.units:
        return None, _UNKNOWN
    growth, work = Fraction(last.units, first.units), last.useful / first.useful
    kind = WEAK if work * work > growth else STRONG
    grown = f"{unit}s grow {float(growth):.2f} times, useful time {float(work):.2f} times"
    return kind, f"{grown} (ideal: strong 1, weak {float(growth):.2f}; weak above {float(growth) ** 0.5:.2f})"


def _rate(run: _Measured, first: _Measured, kind: str | None, *, on_gpus: bool) -> ScalingRun:
    tree = run.device if on_gpus else run.host
    growth = Fraction(run.units, first.units) if first.units else None
    speedup = Fraction(first.time, run.time) if first.time and run.time else None
    scalability = first.useful / run.useful if first.useful and run.useful and kind else None
    if kind == WEAK:
        speedup, scalability = (
            None if rate is None or not growth else rate * growth for rate in (speedup, scalability)
        )
    efficiency = speedup / growth if speedup is not None and growth and kind else None
    parallel = None if tree is None else tree.parallel
    product = None if parallel is None or scalability is None else parallel * float(scalability)
    return ScalingRun(
        label=run.side.label,
        nodes=run.side.summary.nodes,
        processes=run.processes,
        gpus=run.gpus,
        time_ns=run.time,
        useful_ns=None if run.useful is None else round(run.useful),
        speedup=None if speedup is None else float(speedup),
        efficiency=None if efficiency is None else float(efficiency),
        global_efficiency=product,
        computation_scalability=None if scalability is None else float(scalability),
        parallel=parallel,
        device=run.device,
        host=run.host,
    )


_LONGEST = 16
"""Most characters of a run's label on the terminal."""
_GAP = 2


def tabulate_scaling(scaling: Scaling, quote: Callable[[str], str]) -> Grid:
    """Return a row for each quantity that applies to any run, with a column for each run.

    `quote`: makes a name part of the caption. A cell is empty if a rate does not apply to a run.
    """
    runs = scaling.runs
    on_gpus = any(run.gpus for run in runs)
    unit = "GPUs" if on_gpus else "main threads"
    speedup, grown = ("speedup of the work", f" x growth of the {unit}") if scaling.kind == WEAK else ("speedup", "")
    time = Term("window" if scaling.step_name is None else "step")
    speedup_term = Term(speedup, f"Time of the first run / time of this one{grown}")
    scalability = f"Useful time of all {unit} in the first run / that in this one{grown}"
    rates = {
        "efficiency": Term("efficiency", f"Speedup / growth of the {unit}"),
        "global_efficiency": Term("global efficiency", "Parallel efficiency x computation scalability"),
        "computation_scalability": Term("computation scalability", scalability, 1),
    }
    rows: list[list[Cell]] = [
        [Term("nodes"), *(Count(run.nodes) for run in runs)],
        [Term("processes"), *(Count(run.processes) for run in runs)],
        [Term("GPUs"), *(Count(run.gpus) if on_gpus else "" for run in runs)],
        [time, *(Ns(run.time_ns) for run in runs)],
        [speedup_term, *("" if run.speedup is None else f"{run.speedup:.2f}" for run in runs)],
    ]
    rows += [[term, *(Score(getattr(run, key)) for run in runs)] for key, term in rates.items()]
    if on_gpus:
        rows += list_device_scores("parallel", [run.device for run in runs], _lower(DEVICE_TERMS))
    terms, root = (HOST_TERMS, "host, parallel") if on_gpus else (_lower(HOST_TERMS), "parallel")
    for key, term in terms.items():
        trees = [run.host if applies(key, run.host) else None for run in runs]
        rows += list_scores({key: term}, root, trees)
    columns = make_columns("", *(clean_name(run.label) for run in runs))
    filled = [row for row in rows if any(map(str, row[1:]))]
    return Grid(caption=describe_scaling(scaling, quote), columns=columns, rows=filled)


def _lower(terms: Mapping[str, Term]) -> dict[str, Term]:
    """Return the terms one level deeper: they are factors of the global efficiency."""
    return {key: replace(term, depth=term.depth + 1) for key, term in terms.items()}


def format_scaling(scaling: Scaling, width: int) -> list[str]:
    """Return the lines on scaling: what is compared, the table (in parts if there are many runs), and notes."""
    grid = tabulate_scaling(scaling, quote_name)
    labels = cut_names([column.title for column in grid.columns[1:]], _LONGEST)
    titles = [Column(""), *map(Column, labels)]
    lines: list[str] = []
    for number, columns in enumerate(_split_columns(grid, labels, width)):
        part = replace(
            grid,
            caption="" if number else grid.caption,
            columns=[titles[column] for column in (0, *columns)],
            rows=[[row[column] for column in (0, *columns)] for row in grid.rows],
        )
        lines += [*([""] if number else []), *format_grid(part, width, None)]
    for note in scaling.notes:
        lines += wrap(note, width)
    return lines


def describe_scaling(scaling: Scaling, quote: Callable[[str], str]) -> str:
    """Return what is compared, in a sentence without a full stop. `quote`: makes a name part of the sentence."""
    kind = "Scaling" if scaling.kind is None else f"{scaling.kind.capitalize()} scaling"
    kind += " (as chosen)" if scaling.is_chosen else ""
    span = "by windows" if scaling.step_name is None else f"by steps {quote(scaling.step_name)}"
    rule = f"; {scaling.rule}" if scaling.rule else ""
    return f"{kind} {span}, against {quote(scaling.runs[0].label)}{rule}"


def _split_columns(grid: Grid, labels: Sequence[str], width: int) -> list[list[int]]:
    """Return the indices of the columns of runs, in groups of at least one that fit the width."""
    texts = [["", *labels], *([str(cell) for cell in row] for row in grid.rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    groups: list[list[int]] = []
    used = width + 1
    for column in range(1, len(widths)):
        if used + _GAP + widths[column] > width:
            groups.append([])
            used = widths[0]
        groups[-1].append(column)
        used += _GAP + widths[column]
    return groups
