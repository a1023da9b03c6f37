"""Tables on communication: the time of each task in NCCL and in MPI, why tasks were late, and NCCL bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nsys2prv_ng.summary.waits import numbers
from nsys2prv_ng.summary.waits.words import find_main_reasons, group_costs, list_bandwidth, list_stragglers
from nsys2prv_ng.text.formatting import count_noun, shorten_range_name
from nsys2prv_ng.text.grid import (
    Bar,
    BarPart,
    Bytes,
    Cell,
    Column,
    Count,
    Grid,
    Name,
    Ns,
    Rate,
    make_columns,
    show_task,
    tabulate,
)
from nsys2prv_ng.text.names import name_task

_WAIT, _HIDDEN_WAIT, _TRANSFER, _UNSPLIT = "waiting_ns", "hidden_wait_ns", "moving_ns", "not_split_ns"
"""Hues of the parts of communication (html/colours.py)."""
_Row = tuple[list[Cell], numbers.TaskWaits, list[BarPart]]
"""The first cells of a row, the numbers of its task, and the waiting parts of its bar."""


def tabulate_nccl_waits(waits: numbers.WaitNumbers, what: str = "NCCL") -> Grid:
    """Return the time of each task in kernels and copies that communicate, and how long others waited for it.

    `what`: "NCCL" if they are all NCCL's.
    """
    ranks = [rank for rank in waits.ranks if rank.nccl_ns or rank.caused_wait_ns] if waits.split else []
    main = find_main_reasons(group_costs(waits.costs, waits.culprits))
    titles = ("", "root cause", f"{what} time", "wait time", "exposed wait", Column("transfer", minor=True))
    scale = max((rank.nccl_ns for rank in ranks), default=0)
    rows: list[_Row] = []
    for rank in ranks:
        exposed = rank.wait_ns if rank.exposed_wait_ns is None else rank.exposed_wait_ns
        hidden = BarPart("overlapped wait", _HIDDEN_WAIT, rank.wait_ns - exposed)
        names = [show_task(rank.rank, rank.task), Name(main[rank.task].label if rank.task in main else "-")]
        times = map(Ns, (rank.nccl_ns, rank.wait_ns, rank.exposed_wait_ns, rank.transfer_ns))
        rows.append(([*names, *times], rank, [BarPart("exposed wait", _WAIT, exposed), hidden]))
    caption = f"{what[:1].upper()}{what[1:]} time of each {_name_each(ranks)}, and the wait it caused"
    return _tabulate(caption, titles, rows, scale, names=2, tight=True)


def tabulate_mpi_waits(waits: numbers.WaitNumbers) -> Grid:
    """Return the time of each task in MPI calls between ranks, and how long others waited for it."""
    ranks = [(rank, rank.mpi) for rank in waits.ranks if rank.mpi is not None] if waits.split else []
    rows: list[_Row] = []
    for rank, mpi in ranks:
        times = map(Ns, (mpi.mpi_ns, mpi.wait_ns, mpi.transfer_ns))
        rows.append(([show_task(rank.rank, rank.task), *times], mpi, [BarPart("wait", _WAIT, mpi.wait_ns)]))
    caption = f"MPI time of each {_name_each([rank for rank, _ in ranks])} in collectives and messages"
    scale = max((mpi.mpi_ns for _, mpi in ranks), default=0)
    return _tabulate(caption, ["", "MPI time", "wait time", Column("transfer", minor=True)], rows, scale)


def _name_each(ranks: Sequence[numbers.RankWaits]) -> str:
    """Return what each row is of: a rank, or a process if any rank is unknown."""
    return "process" if any(rank.rank is None for rank in ranks) else "rank"


def _tabulate(caption: str, titles: Sequence[str | Column], rows: Sequence[_Row], scale: int, **settings: Any) -> Grid:
    """Return a table of tasks. The parts of a bar add up to the time of the task; a time of `scale` fills the cell.

    `settings`: further fields of the table.
    """
    has_unsplit = any(task.unsplit_ns for _, task, _ in rows)
    cells: list[list[Cell]] = []
    bars = []
    for first, task, waiting in rows:
        unsplit = BarPart("unclassified", _UNSPLIT, task.unsplit_ns)
        bars.append(Bar([*waiting, BarPart("transfer", _TRANSFER, task.transfer_ns), unsplit], scale))
        row = [*first, Ns(task.unsplit_ns) if has_unsplit else "", Count(task.last)]
        cells.append([*row, Ns(task.caused_wait_ns), bars[-1]])
    unclassified = Column("unclassified", optional=True, minor=True)
    return Grid(
        caption=caption,
        columns=make_columns(*titles, unclassified, "last arrival", "wait caused", Column("", wide=True)),
        rows=cells,
        more="that cause less wait",
        weights=[(task.caused_wait_ns, task.wait_ns) for _, task, _ in rows],
        legend=list(dict.fromkeys((part.hue, part.text) for bar in bars for part in bar.parts if part.amount)),
        **settings,
    )


def tabulate_reasons(waits: numbers.WaitNumbers) -> Grid:
    """Return why tasks were late, the most expensive reason first. The times add up to the time that others waited."""
    late = group_costs(waits.costs, waits.culprits)
    has_origins = any(row.origins for row in late)
    whole = sum(row.ns for row in late)
    rows: list[list[Cell]] = [
        [
            show_task(row.rank, row.task),
            row.reason,
            Name(row.range_label),
            Name(row.what_label),
            Name(", ".join([*row.origins[:1], *(".." for _ in row.origins[1:2])]) or "-") if has_origins else "",
            Count(row.times) if row.times else "-",
            Ns(row.ns),
            Bar([BarPart("share", _WAIT, row.ns)], whole),
        ]
        for row in late
    ]
    inherited = Column("inherited from", optional=True)
    titles = ("", "reason", "NVTX range", "main call", inherited, "count", "wait caused", Column("", wide=True))
    caption = "Why ranks arrived late, and the wait that this caused"
    return Grid(caption=caption, columns=make_columns(*titles), rows=rows, names=5, group=1)


_LEAST_EXCESS = 0.005
"""Least excess that is listed, as a share of the time that numbers cover."""


def tabulate_excess(waits: numbers.WaitNumbers, whole_ns: int, steps: int) -> Grid:
    """Return what the rank that others waited for longest took longer for than the others, for each step.

    `whole_ns`: the time that numbers cover. `steps`: the number of steps in it; 0 without steps.
    """
    listed = [row for row in waits.excess if row.ns - row.others_ns >= _LEAST_EXCESS * whole_ns]
    stragglers = list_stragglers(waits)[:1] if listed else []
    late = "".join(name_task(rank.rank, rank.task) for rank, _ in stragglers)
    rows: list[list[Cell]] = [
        [
            Name(shorten_range_name(row.domain, row.name) if row.kind == "range" else row.name),
            row.kind,
            *(Ns(round(ns / (steps or 1))) for ns in (row.ns, row.others_ns, row.ns - row.others_ns)),
        ]
        for row in listed
    ]
    caption = f"Excess time of {late}{' per step' if steps else ''}, without wait time"
    columns = make_columns("NVTX range or call", "kind", "time", "mean of others", "excess")
    return Grid(caption=caption, columns=columns, rows=rows, names=2)


# ---- bandwidth -------------------------------------------------------------------------------------------------------


def tabulate_bandwidth(bandwidth: Sequence[numbers.Bandwidth]) -> Grid:
    """Return the bandwidth of collectives by function, number of ranks and size, most bytes first."""
    count = count_noun(sum(part.count for part in bandwidth), "collective")
    return tabulate(
        list_bandwidth(bandwidth),
        [
            ("NCCL", lambda row: Name(row.function)),
            (Column("communicator", optional=True, minor=True), lambda row: Name(row.communicator)),
            ("ranks", lambda row: Count(row.ranks)),
            ("size", lambda row: row.size),
            ("count", lambda row: Count(row.operations)),
            ("mean", lambda row: Ns(row.ns / row.operations)),
            ("algbw", lambda row: Rate(row.algorithm_bytes_per_s)),
            ("busbw", lambda row: Rate(row.bus_bytes_per_s)),
        ],
        caption=f"Bandwidth of {count} from the last arrival on, without wait time",
        names=2,
        more="sizes",
    )


def tabulate_mpi(calls: Sequence[numbers.MpiNumbers]) -> Grid:
    """Return MPI calls by name, the longest time first."""
    return tabulate(
        calls,
        [
            ("MPI", lambda call: Name(call.call)),
            ("calls", lambda call: Count(call.count)),
            ("time", lambda call: Ns(call.total_ns)),
            ("mean", lambda call: Ns(call.total_ns / call.count)),
            (Column("max", minor=True), lambda call: Ns(call.max_ns)),
            ("sent", lambda call: Bytes(call.sent_bytes)),
            ("received", lambda call: Bytes(call.received_bytes)),
            (
                Column("rate", minor=True),
                lambda call: Rate.measure((call.sent_bytes or 0) + (call.received_bytes or 0), call.rated_ns),
            ),
        ],
        more="calls",
    )
