"""Tables of waits: the time of each task in NCCL and in MPI, and why tasks were late."""

from __future__ import annotations

from nsys2prv_ng.summary.numbers.late import find_main_reasons, group_costs
from nsys2prv_ng.summary.numbers.waits import RankWaits, WaitNumbers
from nsys2prv_ng.text.grid import Bar, BarPart, Cell, Column, Count, Grid, Name, Ns, make_columns
from nsys2prv_ng.text.names import name_task

_LAST_AND_CAUSED = "last: collectives in which the others waited for it; caused: how long all others waited for it"
_MORE = "for which others wait less"
_WAIT, _HIDDEN_WAIT, _TRANSFER, _UNSPLIT = "waiting_ns", "hidden_wait_ns", "moving_ns", "not_split_ns"
"""Hues of the parts of communication (html/colours.py)."""


def tabulate_nccl_waits(waits: WaitNumbers) -> Grid:
    """Return the time of each task in NCCL kernels, and for how long others waited for it."""
    ranks = [rank for rank in waits.ranks if rank.nccl_ns or rank.caused_wait_ns] if waits.split else []
    main = find_main_reasons(group_costs(waits.costs, waits.culprits))
    unsplit = ["not split"] if any(rank.unsplit_ns for rank in ranks) else []
    scale = max((rank.nccl_ns for rank in ranks), default=0)
    rows: list[list[Cell]] = [
        [
            Name(name_task(rank.rank, rank.task)),
            Name(main[rank.task].label if rank.task in main else "-"),
            Ns(rank.nccl_ns),
            Ns(rank.wait_ns),
            Ns(rank.exposed_wait_ns),
            Ns(rank.transfer_ns),
            *([Ns(rank.unsplit_ns)] if unsplit else []),
            Count(rank.last),
            Ns(rank.caused_wait_ns),
            _draw_nccl(rank, scale),
        ]
        for rank in ranks
    ]
    titles = ["", "late because of", "in NCCL", "waiting", "exposed", "moving", *unsplit, "last", "caused"]
    about = f"exposed: waiting while its GPU computes nothing; {_LAST_AND_CAUSED}"
    return Grid(
        caption=f"Time of each rank in NCCL kernels ({about})",
        columns=make_columns(*titles, Column("", wide=True)),
        rows=rows,
        names=2,
        more=_MORE,
        weights=[(rank.caused_wait_ns, rank.wait_ns) for rank in ranks],
        tight=True,
        legend=_list_hues([_draw_nccl(rank, scale) for rank in ranks]),
    )


def _draw_nccl(rank: RankWaits, scale: int) -> Bar:
    """Return the parts of the time of a task in NCCL kernels, which add up to it."""
    exposed = rank.wait_ns if rank.exposed_wait_ns is None else rank.exposed_wait_ns
    parts = [
        BarPart("exposed waiting", _WAIT, exposed),
        BarPart("waiting behind compute", _HIDDEN_WAIT, rank.wait_ns - exposed),
        BarPart("moving", _TRANSFER, rank.transfer_ns),
        BarPart("not split", _UNSPLIT, rank.unsplit_ns),
    ]
    return Bar(parts, scale)


def tabulate_mpi_waits(waits: WaitNumbers) -> Grid:
    """Return the time of each task in MPI calls over ranks, and for how long others waited for it."""
    ranks = [(rank, rank.mpi) for rank in waits.ranks if rank.mpi is not None] if waits.split else []
    unsplit = ["not split"] if any(mpi.unsplit_ns for _, mpi in ranks) else []
    scale = max((mpi.mpi_ns for _, mpi in ranks), default=0)
    rows: list[list[Cell]] = []
    bars = []
    for rank, mpi in ranks:
        parts = [BarPart("waiting", _WAIT, mpi.wait_ns), BarPart("moving", _TRANSFER, mpi.transfer_ns)]
        bars.append(Bar([*parts, BarPart("not split", _UNSPLIT, mpi.unsplit_ns)], scale))
        times = [mpi.mpi_ns, mpi.wait_ns, mpi.transfer_ns, *([mpi.unsplit_ns] if unsplit else [])]
        row: list[Cell] = [Name(name_task(rank.rank, rank.task)), *map(Ns, times), Count(mpi.last)]
        rows.append([*row, Ns(mpi.caused_wait_ns), bars[-1]])
    has_nccl = any(rank.nccl_ns or rank.caused_wait_ns for rank in waits.ranks)
    about = "columns as for NCCL" if has_nccl else _LAST_AND_CAUSED
    titles = ["", "in MPI", "waiting", "moving", *unsplit, "last", "caused"]
    return Grid(
        caption=f"Time of each rank in MPI calls that carry out collectives and messages ({about})",
        columns=make_columns(*titles, Column("", wide=True)),
        rows=rows,
        more=_MORE,
        weights=[(mpi.caused_wait_ns, mpi.wait_ns) for _, mpi in ranks],
        legend=_list_hues(bars),
    )


def _list_hues(bars: list[Bar]) -> list[tuple[str, str]]:
    """Return hue and text of the parts that any bar has."""
    return list(dict.fromkeys((part.hue, part.text) for bar in bars for part in bar.parts if part.amount))


def tabulate_reasons(waits: WaitNumbers) -> Grid:
    """Return why tasks were late, what cost most first; the times add up to those for which others waited."""
    late = group_costs(waits.costs, waits.culprits)
    has_origins = any(row.origins for row in late)
    whole = sum(row.ns for row in late)
    rows: list[list[Cell]] = [
        [
            Name(name_task(row.rank, row.task)),
            row.reason,
            Name(row.range_label),
            Name(row.what_label),
            *([Name(", ".join([*row.origins[:1], *(".." for _ in row.origins[1:2])]) or "-")] if has_origins else []),
            Count(row.times) if row.times else "-",
            Ns(row.ns),
            Bar([BarPart("share", _WAIT, row.ns)], whole),
        ]
        for row in late
    ]
    origins = "; delayed by: for whom the late rank had waited itself" if has_origins else ""
    titles = ["", "reason", "NVTX range", "mostly", *(["delayed by"] if has_origins else []), "times", "waiting"]
    return Grid(
        caption="Why ranks were late, how often mainly for this, and how long the others waited "
        f"(adds up to caused{origins})",
        columns=make_columns(*titles, Column("", wide=True)),
        rows=rows,
        names=len(titles) - 2,
        group=1,
    )
