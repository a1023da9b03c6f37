"""What matched operations show of clocks: when each rank arrived, and when it had waited for the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.operations.matching import Operations, match_collectives
from nsys2prv_ng.operations.parts import FROM_ROOT, SYNCHRONISING, TO_ROOT, Evidence, Messages

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


def match_evidence(
    evidence: Sequence[Evidence], domains: Sequence[int], offsets: Sequence[int]
) -> tuple[Operations, Matches]:
    """Return the collectives of all reports, and what they and messages show of the clocks.

    Arguments, for each report: its evidence, its clock's domain, and the offset (ns) of its times to UTC.
    """
    operations = match_collectives([(e.collectives, d, o) for e, d, o in zip(evidence, domains, offsets, strict=True)])
    collectives = _list_crossings(operations)
    messages = _match_messages([(e.messages, d, o) for e, d, o in zip(evidence, domains, offsets, strict=True)])
    messages["group"] += int(operations.group.max(initial=-1)) + 1
    filled = [part for part in (collectives, messages) if len(part)]
    return operations, match_reports(pd.concat(filled, ignore_index=True) if filled else _make_empty())


def match_rows(evidence: Sequence[Evidence], domains: Sequence[int], offsets: Sequence[int]) -> Matches:
    """Return operations in which ranks of several domains took part. Arguments as for `match_evidence`."""
    return match_evidence(evidence, domains, offsets)[1]


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


def _list_crossings(operations: Operations) -> pd.DataFrame:
    """Return the parts of operations with ranks of several domains, as rows for `match_reports`."""
    table, count = operations.table, np.diff(operations.first)
    if not len(operations):
        return _make_empty()
    domain = table.domain[operations.part]  # sorted within an operation
    crosses = domain[operations.first[:-1]] != domain[operations.first[1:] - 1]
    number = np.repeat(np.arange(len(operations)), count)
    kept = np.repeat(crosses, count)
    part, number = operations.part[kept], number[kept]
    kind, known, is_root = table.kind[part], table.has_communicator[part], table.is_root[part]
    synchronising = kind == SYNCHRONISING
    enters = known & (synchronising | ((kind == FROM_ROOT) & is_root) | ((kind == TO_ROOT) & ~is_root))
    leaves = synchronising | (known & (((kind == FROM_ROOT) & ~is_root) | ((kind == TO_ROOT) & is_root)))
    return pd.DataFrame(
        {
            "group": operations.group[number].astype(np.int64),
            "instance": number,
            "fits": synchronising,
            "domain": table.domain[part],
            "enter": np.where(enters, table.begin[part], NEVER_ENTERS),
            "leave": np.where(leaves, table.end[part], NEVER_LEAVES),
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
