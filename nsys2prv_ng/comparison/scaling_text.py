"""The text on a scaling run: a table with a column for each run, as in POP's reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nsys2prv_ng.comparison.scaling_model import WEAK, Scaling, ScalingRun
from nsys2prv_ng.paraver.event_type import to_one_line
from nsys2prv_ng.summary.layout import clean_name, format_percent, make_table, wrap
from nsys2prv_ng.text.formatting import format_time
from nsys2prv_ng.text.tables import cut_names

_LONGEST = 16
"""Characters of a run's label in the terminal."""
_GAP = 2
_Cell = Callable[[ScalingRun], "str | None"]


def list_scaling_rows(scaling: Scaling) -> list[list[str]]:
    """Return the titles and then the rows of the table; blanks indent the factors of a rate.

    A cell is empty where a rate does not apply to a run; a row is missing where it applies to none. Labels are in one
    line, and not escaped for any markup.
    """
    rows = [[name, *(cell(run) or "" for run in scaling.runs)] for name, cell in _list_cells(scaling)]
    return [["", *(to_one_line(run.label) for run in scaling.runs)], *(row for row in rows if any(row[1:]))]


def format_scaling(scaling: Scaling, width: int) -> list[str]:
    """Return the lines of a scaling run: what it is, the table (in parts if there are many runs), and notes."""
    titles, *rows = list_scaling_rows(scaling)
    titles = ["", *cut_names(titles[1:], _LONGEST)]
    lines = wrap(f"{describe_scaling(scaling)}:", width)
    for columns in _split_columns([titles, *rows], width):
        part = [[row[0], *(row[column] for column in columns)] for row in [titles, *rows]]
        lines += ["", *make_table(part[0], part[1:], width)] if columns[0] > 1 else make_table(part[0], part[1:], width)
    for note in scaling.notes:
        lines += wrap(note, width)
    return lines


def describe_scaling(scaling: Scaling) -> str:
    """Return what is compared, in a sentence without its end."""
    kind = "Scaling" if scaling.kind is None else f"{scaling.kind.capitalize()} scaling"
    kind += " (as chosen)" if scaling.is_chosen else ""
    span = "by windows" if scaling.step_name is None else f"by steps `{clean_name(scaling.step_name)}`"
    rule = f"; {scaling.rule}" if scaling.rule else ""
    return f"{kind} {span}, against {to_one_line(scaling.runs[0].label)}{rule}"


def _list_cells(scaling: Scaling) -> list[tuple[str, _Cell]]:
    """Return the name of each row, and what makes its cells."""
    on_gpus = any(run.gpus for run in scaling.runs)
    time = "window" if scaling.step_name is None else "step"
    speedup = "speedup of the work" if scaling.kind == WEAK else "speedup"
    cells: list[tuple[str, _Cell]] = [
        ("nodes", lambda run: f"{run.nodes:,}"),
        ("processes", lambda run: f"{run.processes:,}"),
        ("GPUs", lambda run: f"{run.gpus:,}" if on_gpus else None),
        (time, lambda run: format_time(run.time_ns)),
        (speedup, lambda run: None if run.speedup is None else f"{run.speedup:.2f}"),
        ("efficiency", lambda run: _percent(run.efficiency)),
        ("global efficiency", lambda run: _percent(run.global_efficiency)),
        ("  computation scalability", lambda run: _percent(run.computation_scalability)),
    ]
    if on_gpus:
        return [*cells, *_list_device_cells(), *_list_host_cells("host, parallel", "  ")]
    return [*cells, *_list_host_cells("  parallel", "    ")]


def _list_device_cells() -> list[tuple[str, _Cell]]:
    return [
        ("  parallel", lambda run: None if run.device is None else _percent(run.device.parallel)),
        ("    load balance", lambda run: None if run.device is None else _percent(run.device.load_balance)),
        ("    communication", lambda run: None if run.device is None else _percent(run.device.communication)),
        ("    orchestration", lambda run: None if run.device is None else _percent(run.device.orchestration)),
    ]


def _list_host_cells(title: str, margin: str) -> list[tuple[str, _Cell]]:
    """Return the rows of main threads; those of MPI and of CUDA stay empty where a run has none of it."""

    def show_mpi(part: str) -> _Cell:
        return lambda run: None if run.host is None or run.host.mpi_parallel == 1 else _percent(getattr(run.host, part))

    return [
        (title, lambda run: None if run.host is None else _percent(run.host.parallel)),
        (f"{margin}MPI parallel", show_mpi("mpi_parallel")),
        (f"{margin}  load balance", show_mpi("mpi_load_balance")),
        (f"{margin}  communication", show_mpi("mpi_communication")),
        (
            f"{margin}device offload",
            lambda run: None if run.host is None or run.host.offload == 1 else _percent(run.host.offload),
        ),
    ]


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
