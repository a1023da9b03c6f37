"""Formats the scaling of runs: a table with a column for each run, as in POP's reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nsys2prv_ng.comparison.model import WEAK, Scaling
from nsys2prv_ng.summary.efficiency.table import DEVICE_TERMS, HOST_TERMS, applies, list_device_scores, list_scores
from nsys2prv_ng.text.grid import Cell, Column, Count, Grid, Ns, Score, Term, make_columns
from nsys2prv_ng.text.layout import format_grid, wrap
from nsys2prv_ng.text.names import quote_name, to_one_line
from nsys2prv_ng.text.tables import cut_names

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
    columns = make_columns("", *(to_one_line(run.label) for run in runs))
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
