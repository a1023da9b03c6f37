"""Finds the rows of all reports that are one operation: the k-th of a communicator on each of its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.clock import lag as lags
from nsys2prv_ng.clock.collectives import FROM_ROOT, SYNCHRONISING, TO_ROOT, Collectives, Evidence, Messages

NEVER_LEAVES, NEVER_ENTERS = np.iinfo(np.int64).max, np.iinfo(np.int64).min


@dataclass(frozen=True)
class Matches:
    """n operations, and the part of each domain's rank in them: rows first[i] .. first[i + 1] - 1 of operation i.

    Times are ns on a UTC that is not corrected yet. No row's `leave` may be before any row's `enter` of the same
    operation: `enter` is when a rank arrived where others wait for it (NEVER_ENTERS if none wait), `leave` when
    a rank had waited for all of them (NEVER_LEAVES if it did not wait).
    """

    first: IntArray
    fits: BoolArray
    """Whether all ranks leave an operation at about the same time, so that its `leave` is evidence for the fit."""
    group: IntArray
    """Number of the communicator of each operation: any numbers."""
    domain: npt.NDArray[np.int32]
    enter: IntArray
    leave: IntArray

    def __len__(self) -> int:
        return self.first.size - 1


def match_rows(evidence: Sequence[Evidence], domains: Sequence[int], offsets: Sequence[int]) -> Matches:
    """Return operations in which ranks of several reports took part, or several ranks of one.

    Arguments, for each report: its evidence, its clock's domain, and the offset (ns) of its times to UTC.
    """
    collectives = _match_collectives(
        [(e.collectives, d, o) for e, d, o in zip(evidence, domains, offsets, strict=True)]
    )
    messages = _match_messages([(e.messages, d, o) for e, d, o in zip(evidence, domains, offsets, strict=True)])
    messages["group"] += len(collectives)
    filled = [part for part in (*collectives, messages) if len(part)]
    return match_reports(pd.concat(filled, ignore_index=True) if filled else _make_empty())


_COLUMNS = ("group", "instance", "fits", "domain", "enter", "leave")


def match_reports(rows: pd.DataFrame) -> Matches:
    """Return matches from rows with group, instance (within the group), fits, domain, enter and leave.

    Operations of a single domain contain no information about clocks and are skipped.
    """
    rows = rows.sort_values(["group", "instance", "domain"], kind="stable")
    group, instance = rows["group"].to_numpy(np.int64), rows["instance"].to_numpy(np.int64)
    new = np.ones(len(rows), np.bool_)
    new[1:] = (group[1:] != group[:-1]) | (instance[1:] != instance[:-1])
    starts = np.flatnonzero(new)
    count = np.diff(np.append(starts, len(rows)))
    domain = rows["domain"].to_numpy(np.int32)
    several = domain[starts] != domain[starts + count - 1]
    kept = np.repeat(several, count)
    return Matches(
        first=np.concatenate([[0], np.cumsum(count[several])]).astype(np.int64),
        fits=rows["fits"].to_numpy(np.bool_)[starts[several]],
        group=group[starts[several]],
        domain=domain[kept],
        enter=rows["enter"].to_numpy(np.int64)[kept],
        leave=rows["leave"].to_numpy(np.int64)[kept],
    )


# ---- collectives -----------------------------------------------------------------------------------------------------


def _match_collectives(reports: Sequence[tuple[Sequence[Collectives], int, int]]) -> list[pd.DataFrame]:
    """Return matched rows, a table for each group of ranks of a communicator that agree."""
    table = _make_table(reports)
    matched: list[pd.DataFrame] = []
    for _, rows in table.groupby("communicator", sort=False):
        if rows["domain"].nunique() > 1:
            matched += [part.assign(group=len(matched) + i) for i, part in enumerate(_align(rows))]
    return matched


def _make_table(reports: Sequence[tuple[Sequence[Collectives], int, int]]) -> pd.DataFrame:
    """Return all rows on UTC, with communicators and operations as numbers that are the same for all reports."""
    communicators: dict[str, int] = {}
    operations: dict[str, int] = {}
    tables = [pd.DataFrame({name: np.zeros(0, kind) for name, kind in _ROW.items()})]
    for report, (sources, domain, offset) in enumerate(reports):
        for source, collectives in enumerate(sources):
            communicator = [communicators.setdefault(name, len(communicators)) for name in collectives.communicators]
            operation = [operations.setdefault(name, len(operations)) for name in collectives.operations]
            columns = {
                "communicator": np.array(communicator, np.int64)[collectives.communicator],
                "operation": np.array(operation, np.int64)[collectives.operation],
                "bytes": collectives.bytes,
                "member": collectives.member,
                "report": report * _MOST_SOURCES + source,
                "domain": domain,
                "begin": collectives.begin + offset,
                "end": collectives.end + offset,
                "kind": collectives.kind,
                "is_root": collectives.is_root,
                "known": collectives.has_communicator,
            }
            tables.append(pd.DataFrame(columns).astype(_ROW))
    filled = [table for table in tables if len(table)] or tables[:1]
    return pd.concat(filled, ignore_index=True)


_ROW = {
    **dict.fromkeys(("communicator", "operation", "member", "report", "domain"), np.int32),
    **dict.fromkeys(("bytes", "begin", "end"), np.int64),
    **dict.fromkeys(("kind", "is_root", "known"), np.int8),
}
"""Columns and their types: there can be tens of millions of rows."""

_MOST_SOURCES = 16


def _align(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return rows of one communicator with the numbers of their operations; one table for each group that agrees."""
    rows = rows.sort_values(["report", "member", "begin", "end"], kind="stable")
    starts = _find_starts(rows[["report", "member"]].to_numpy())
    ranges = list(zip(starts, np.append(starts[1:], len(rows)).tolist(), strict=True))
    columns = [rows[name].to_numpy(np.int64) for name in ("operation", "bytes", "end")]
    sequences = [lags.Sequence(*(column[low:high] for column in columns)) for low, high in ranges]

    # The others are compared with the longest sequence that is left.
    left = sorted(range(len(ranges)), key=lambda i: (ranges[i][0] - ranges[i][1], i))
    clusters = []
    while left:
        reference, *others = left
        lag_of_rank = {reference: lags.Lag(0, 0, sequences[reference].end.size)}
        for other in others:
            lag = lags.find_lag(sequences[reference], sequences[other])
            if lag is not None:
                lag_of_rank[other] = lag
        left = [i for i in left if i not in lag_of_rank]
        if len(lag_of_rank) > 1:
            clusters.append(_number_rows(rows, ranges, lag_of_rank, sequences))
    return clusters


def _find_starts(keys: npt.NDArray[np.int64]) -> list[int]:
    new = np.ones(len(keys), np.bool_)
    new[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    starts: list[int] = np.flatnonzero(new).tolist()
    return starts


def _number_rows(
    rows: pd.DataFrame,
    ranges: Sequence[tuple[int, int]],
    lag_of_rank: dict[int, lags.Lag],
    sequences: Sequence[lags.Sequence],
) -> pd.DataFrame:
    """Return the rows of the ranks with known lags against a reference, the first of them."""
    taken, numbers = [], []
    for member, lag in lag_of_rank.items():
        low, high = ranges[member]
        # Only the run if it is one; otherwise all of the sequence, since others may share what the reference lacks.
        number = np.arange(lag.lag, lag.lag + sequences[member].end.size, dtype=np.int64)
        overlap = min(sequences[next(iter(lag_of_rank))].end.size, number[-1] + 1) - max(0, lag.lag)
        is_run = lag.last - lag.first < overlap
        part = (number >= lag.first) & (number < lag.last) if is_run else np.ones(number.size, np.bool_)
        taken.append(np.arange(low, high)[part])
        numbers.append(number[part])
    chosen = rows.iloc[np.concatenate(taken)]
    kind, known = chosen["kind"].to_numpy(), chosen["known"].to_numpy() == 1
    is_root = chosen["is_root"].to_numpy() == 1
    synchronising = kind == SYNCHRONISING
    enters = known & (synchronising | ((kind == FROM_ROOT) & is_root) | ((kind == TO_ROOT) & ~is_root))
    leaves = synchronising | (known & (((kind == FROM_ROOT) & ~is_root) | ((kind == TO_ROOT) & is_root)))
    return pd.DataFrame(
        {
            "instance": np.concatenate(numbers),
            "fits": synchronising,
            "domain": chosen["domain"].to_numpy(),
            "enter": np.where(enters, chosen["begin"].to_numpy(), NEVER_ENTERS),
            "leave": np.where(leaves, chosen["end"].to_numpy(), NEVER_LEAVES),
        }
    )


def _make_empty() -> pd.DataFrame:
    return pd.DataFrame({name: np.zeros(0, np.int64) for name in _COLUMNS}).astype({"fits": np.bool_})


# ---- messages --------------------------------------------------------------------------------------------------------


def _match_messages(reports: Sequence[tuple[Sequence[Messages], int, int]]) -> pd.DataFrame:
    """Return the k-th send and the k-th receive of each channel with equal numbers of sends and receives."""
    channels: dict[str, int] = {}
    tables = []
    for sources, domain, offset in reports:
        for messages in sources:
            channel = [channels.setdefault(name, len(channels)) for name in messages.channels]
            columns = {
                "group": np.array(channel, np.int64)[messages.channel],
                "is_send": messages.is_send,
                "order": messages.order + offset,
                "domain": domain,
                "enter": np.where(messages.is_send, messages.time + offset, NEVER_ENTERS),
                "leave": np.where(messages.is_send, NEVER_LEAVES, messages.time + offset),
            }
            tables.append(pd.DataFrame(columns))
    if not tables:
        return _make_empty()
    rows = pd.concat(tables, ignore_index=True).sort_values("order", kind="stable")
    rows["instance"] = rows.groupby(["group", "is_send"]).cumcount()
    sends = rows.groupby("group")["is_send"].transform("sum")
    rows = rows[2 * sends == rows.groupby("group")["is_send"].transform("size")].copy()
    rows["fits"] = False
    return rows[[*_COLUMNS]]
