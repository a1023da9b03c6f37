"""The text on a scaling run: a table with a column for each run, as in POP's reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from nsys2prv_ng.comparison.scaling_model import WEAK, Scaling, ScalingRun
from nsys2prv_ng.summary.tables.efficiency import DEVICE_TERMS, HOST_TERMS
from nsys2prv_ng.text.formatting import format_time
from nsys2prv_ng.text.grid import Cell, Column, Grid, Score, Term, make_columns
from nsys2prv_ng.text.layout import format_grid, wrap
from nsys2prv_ng.text.names import quote_name, to_one_line
from nsys2prv_ng.text.tables import cut_names

_LONGEST = 16
"""Characters of a run's label in the terminal."""
_GAP = 2


class _Term(NamedTuple):
    term: str
    depth: int
    about: str
    show: Callable[[ScalingRun], str | None] | None = None
    """Returns the text, where that is not the efficiency."""
    efficiency: Callable[[ScalingRun], float | None] = lambda run: None


def tabulate_scaling(scaling: Scaling, quote: Callable[[str], str]) -> Grid:
    """Return a row for each quantity that applies to any run, with a column for each run.

    `quote` makes a name a part of the caption. A cell is empty if a rate does not apply to a run.
    """
    rows: list[list[Cell]] = []
    for term in _list_terms(scaling):
        rates = [term.efficiency(run) for run in scaling.runs]
        cells: list[Cell] = (
            [*map(Score, rates)] if term.show is None else [term.show(run) or "" for run in scaling.runs]
        )
        if any(map(str, cells)):
            rows.append([Term(term.term, term.about, term.depth), *cells])
    columns = make_columns("", *(to_one_line(run.label) for run in scaling.runs))
    return Grid(caption=describe_scaling(scaling, quote), columns=columns, rows=rows)


def format_scaling(scaling: Scaling, width: int) -> list[str]:
    """Return the lines of a scaling run: what it is, the table (in parts if there are many runs), and notes."""
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
    """Return what is compared, in a sentence without its end; `quote` makes a name part of it."""
    kind = "Scaling" if scaling.kind is None else f"{scaling.kind.capitalize()} scaling"
    kind += " (as chosen)" if scaling.is_chosen else ""
    span = "by windows" if scaling.step_name is None else f"by steps {quote(scaling.step_name)}"
    rule = f"; {scaling.rule}" if scaling.rule else ""
    return f"{kind} {span}, against {quote(scaling.runs[0].label)}{rule}"


def _list_terms(scaling: Scaling) -> list[_Term]:
    on_gpus = any(run.gpus for run in scaling.runs)
    time = "window" if scaling.step_name is None else "step"
    unit = "GPUs" if on_gpus else "main threads"
    speedup, grown = ("speedup of the work", f" x growth of the {unit}") if scaling.kind == WEAK else ("speedup", "")
    terms = [
        _Term("nodes", 0, "", lambda run: f"{run.nodes:,}"),
        _Term("processes", 0, "", lambda run: f"{run.processes:,}"),
        _Term("GPUs", 0, "", lambda run: f"{run.gpus:,}" if on_gpus else None),
        _Term(time, 0, "", lambda run: format_time(run.time_ns)),
        _Term(
            speedup,
            0,
            f"Time of the first run / time of this one{grown}",
            lambda run: None if run.speedup is None else f"{run.speedup:.2f}",
        ),
        _Term("efficiency", 0, f"Speedup / growth of the {unit}", efficiency=lambda run: run.efficiency),
        _Term(
            "global efficiency",
            0,
            "Parallel efficiency x computation scalability",
            efficiency=lambda run: run.global_efficiency,
        ),
        _Term(
            "computation scalability",
            1,
            f"Useful time of all {unit} in the first run / that in this one{grown}",
            efficiency=lambda run: run.computation_scalability,
        ),
    ]
    if on_gpus:
        return [*terms, *(_make_device_term(key) for key in DEVICE_TERMS), *_list_host_terms("host, parallel", 0)]
    return [*terms, *_list_host_terms("parallel", 1)]


def _make_device_term(key: str) -> _Term:
    depth, about = DEVICE_TERMS[key]

    def find(run: ScalingRun) -> float | None:
        return None if run.device is None else getattr(run.device, key)

    return _Term(key.replace("_", " "), 1 + depth, about, efficiency=find)


def _list_host_terms(root: str, depth: int) -> list[_Term]:
    """Return the rows of main threads; those of MPI and of CUDA stay empty where a run has none of it."""
    return [
        _Term(name or root, depth + below, about, efficiency=partial(_find_host, key))
        for key, (below, name, about) in HOST_TERMS.items()
    ]


def _find_host(key: str, run: ScalingRun) -> float | None:
    host = run.host
    if host is None or (key.startswith("mpi_") and host.mpi_parallel == 1) or (key == "offload" and host.offload == 1):
        return None
    return getattr(host, key)


def _split_columns(grid: Grid, labels: Sequence[str], width: int) -> list[list[int]]:
    """Return the numbers of the columns of runs in groups that fit the width, each with one at least."""
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
