"""The text on a scaling run: a table with a column for each run, as in POP's reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from nsys2prv_ng.comparison.scaling_model import WEAK, Scaling, ScalingRun
from nsys2prv_ng.paraver.event_type import to_one_line
from nsys2prv_ng.summary.layout import clean_name, format_percent, make_table, wrap
from nsys2prv_ng.summary.tables.efficiency import DEVICE_TERMS, HOST_TERMS
from nsys2prv_ng.text.formatting import format_time
from nsys2prv_ng.text.tables import cut_names

_LONGEST = 16
"""Characters of a run's label in the terminal."""
_GAP = 2


class ScalingRow(NamedTuple):
    """A quantity of all runs; depth 0 is the root of a tree."""

    term: str
    depth: int
    about: str
    """What it is, in a sentence; empty for counts and times."""
    texts: list[str]
    """Empty where it does not apply to a run."""
    efficiencies: list[float | None]
    """The same as numbers, which are the better the nearer to 1 they are; None where it is no efficiency."""


class _Term(NamedTuple):
    term: str
    depth: int
    about: str
    show: Callable[[ScalingRun], str | None] | None = None
    """Returns the text, where that is not the efficiency."""
    efficiency: Callable[[ScalingRun], float | None] = lambda run: None


def list_scaling(scaling: Scaling) -> list[ScalingRow]:
    """Return the rows of the table; one that applies to no run is missing."""
    rows = []
    for term in _list_terms(scaling):
        rates = [term.efficiency(run) for run in scaling.runs]
        texts = [_percent(rate) for rate in rates] if term.show is None else [term.show(run) for run in scaling.runs]
        rows.append(ScalingRow(term.term, term.depth, term.about, [text or "" for text in texts], rates))
    return [row for row in rows if any(row.texts)]


def list_scaling_rows(scaling: Scaling) -> list[list[str]]:
    """Return the titles and then the rows of the table; blanks indent the factors of a rate.

    A cell is empty where a rate does not apply to a run. Labels are in one line, and not escaped for any markup.
    """
    rows = [["  " * row.depth + row.term, *row.texts] for row in list_scaling(scaling)]
    return [["", *(to_one_line(run.label) for run in scaling.runs)], *rows]


def format_scaling(scaling: Scaling, width: int) -> list[str]:
    """Return the lines of a scaling run: what it is, the table (in parts if there are many runs), and notes."""
    titles, *rows = list_scaling_rows(scaling)
    titles = ["", *cut_names(titles[1:], _LONGEST)]
    lines = wrap(f"{describe_scaling(scaling, _quote)}:", width)
    for columns in _split_columns([titles, *rows], width):
        part = [[row[0], *(row[column] for column in columns)] for row in [titles, *rows]]
        lines += ["", *make_table(part[0], part[1:], width)] if columns[0] > 1 else make_table(part[0], part[1:], width)
    for note in scaling.notes:
        lines += wrap(note, width)
    return lines


def _quote(name: str) -> str:
    return f"`{clean_name(name)}`"


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


def _percent(rate: float | None) -> str | None:
    return None if rate is None else format_percent(rate, 1)


def _split_columns(rows: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Return the numbers of the columns from 1 on in groups that fit the width, each with one at least."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    groups: list[list[int]] = []
    used = width + 1
    for column in range(1, len(widths)):
        if used + _GAP + widths[column] > width:
            groups.append([])
            used = widths[0]
        groups[-1].append(column)
        used += _GAP + widths[column]
    return groups
