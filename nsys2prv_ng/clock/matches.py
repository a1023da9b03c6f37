"""Finds evidence on clocks in matched operations: when each rank arrived, and when its wait for others ended.

No rank leaves an operation before all ranks that it waits for have entered it. This law checks corrected clocks, and
bounds them: a fit that breaks it by less than the error of the fit is moved until the law holds.

No message is received before it was sent. The time between a send and its receive, each by its own clock, is the delay
of the link plus the difference of the clocks. For messages in the other direction, the difference has the opposite
sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.groups import Table, join_tables, take_rows
from nsys2prv_ng.arrays.row_keys import count_earlier, encode_rows, find_starts, sort_rows
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, Int32Array, IntArray, IntTable
from nsys2prv_ng.operations.matching import Operations, PartTable, match_collectives
from nsys2prv_ng.operations.parts import FROM_ROOT, SYNCHRONISING, TO_ROOT, Evidence, Messages, resolve_ranks
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.value_class import ValueClass

NEVER_LEAVES, NEVER_ENTERS = np.iinfo(np.int64).max, np.iinfo(np.int64).min


class Delays(NamedTuple):
    """n messages between clocks. Times are ns of uncorrected UTC.

    A link is two ranks and a size: its messages may take equally long in both directions; `is_forward`: whether a
    message went in the first of these. `sender` and `receiver` are the domains of the clocks.
    """

    link: IntArray
    is_forward: BoolArray
    sender: npt.NDArray[np.int32]
    receiver: npt.NDArray[np.int32]
    sent: IntArray
    received: IntArray


_NONE = np.zeros(0, np.int64)
NO_DELAYS = Delays(_NONE, _NONE.astype(np.bool_), _NONE.astype(np.int32), _NONE.astype(np.int32), _NONE, _NONE)


class Matches(ValueClass):
    """n operations, and the part of each domain's rank in them: rows first[i] .. first[i + 1] - 1 of operation i.

    Times are ns of uncorrected UTC. No row's `leave` may be before any row's `enter` of the same operation. `enter` is
    when a rank arrived at the point where others wait for it (NEVER_ENTERS if none wait); `leave` is when the wait of a
    rank for all others ended (NEVER_LEAVES if it did not wait).

    - `fits`: whether all ranks leave an operation at about the same time, so that its `leave` is evidence for the fit.
    - `group`: arbitrary number of the communicator of each operation.
    - `delays`: messages between domains: evidence for sets of clocks that no operation connects.
    - `unlike`: number of dropped operations, which were matched by order alone but belong to different communicators.
    """

    first: IntArray
    fits: BoolArray
    group: IntArray
    domain: npt.NDArray[np.int32]
    enter: IntArray
    leave: IntArray
    delays: Delays = NO_DELAYS
    unlike: int = 0

    def __len__(self) -> int:
        return self.first.size - 1


def match_evidence(
    evidence: Sequence[Evidence], domains: Sequence[int], offsets: Sequence[int]
) -> tuple[Operations, Matches]:
    """Return the collectives of all reports, and the evidence of collectives and messages on clocks.

    Arguments, for each report: its evidence, the domain of its clock, and the offset (ns) of its times to UTC.
    """
    operations = match_collectives([(e.collectives, d, o) for e, d, o in zip(evidence, domains, offsets, strict=True)])
    collectives = list_crossings(operations)
    resolved_messages = resolve_ranks([e.rank_messages for e in evidence])
    every = [[*e.messages, *resolved] for e, resolved in zip(evidence, resolved_messages, strict=True)]
    messages, delays = match_messages(list(zip(every, domains, offsets, strict=True)))
    messages["group"] += int(operations.group.max(initial=-1)) + 1
    matches = match_reports(join_tables([collectives, messages]))
    return operations, replace(matches, delays=delays)


def match_reports(rows: Table) -> Matches:
    """Return matches from rows with group, instance (within the group), fits, domain, enter and leave.

    Operations of a single domain contain no evidence on clocks and are skipped.
    """
    rows = take_rows(rows, sort_rows(rows["group"], rows["instance"], rows["domain"]))
    group, domain = rows["group"], rows["domain"].astype(np.int32)
    starts = find_starts(group, rows["instance"])
    count = np.diff(np.append(starts, group.size))
    several = domain[starts] != domain[starts + count - 1]
    kept = np.repeat(several, count)
    return Matches(
        first=np.concatenate([[0], np.cumsum(count[several])]).astype(np.int64),
        fits=rows["fits"][starts[several]],
        group=group[starts[several]],
        domain=domain[kept],
        enter=rows["enter"][kept],
        leave=rows["leave"][kept],
    )


# ---- messages --------------------------------------------------------------------------------------------------------


COLUMNS = ("group", "instance", "fits", "domain", "enter", "leave")


def match_messages(reports: Sequence[tuple[Sequence[Messages], int, int]]) -> tuple[Table, Delays]:
    """Match the k-th send with the k-th receive of each channel that has as many sends as receives.

    `reports`: the messages of each report, the domain of its clock, and the offset (ns) of its times to UTC. Return
    rows for `match_reports`, and the delays between domains.
    """
    tables = _gather(reports)
    if not tables:
        return make_empty(), NO_DELAYS
    rows = join_tables(tables)
    rows = take_rows(rows, sort_rows(rows["order"]))
    group, is_send = rows["group"], rows["is_send"]
    sends = np.bincount(group[is_send], minlength=int(group.max(initial=-1)) + 1)
    rows["instance"] = count_earlier(group, is_send.astype(np.int64))
    rows["fits"] = np.zeros(group.size, np.bool_)
    rows["enter"] = np.where(is_send, rows["time"], NEVER_ENTERS)
    rows["leave"] = np.where(is_send, NEVER_LEAVES, rows["time"])
    rows = take_rows(rows, (2 * sends == np.bincount(group))[group])
    return {name: rows[name] for name in COLUMNS}, _measure_delays(rows)


def make_empty() -> Table:
    return {name: np.zeros(0, np.bool_ if name == "fits" else np.int64) for name in COLUMNS}


def _gather(reports: Sequence[tuple[Sequence[Messages], int, int]]) -> list[Table]:
    """Return the sends and receives of all reports, with numbers of channels and links that all reports share."""
    channels: dict[str, int] = {}
    links: dict[str, int] = {}
    tables: list[Table] = []
    for sources, domain, offset in reports:
        for messages in sources:
            channel = [channels.setdefault(name, len(channels)) for name in messages.channels]
            link = [links.setdefault(name, len(links)) for name in messages.links]
            columns = {
                "group": np.array(channel, np.int64)[messages.channel],
                "link": np.array(link, np.int64)[messages.channel],
                "is_forward": messages.is_forward[messages.channel],
                "is_send": messages.is_send,
                "order": messages.order + offset,
                "domain": np.full(messages.time.size, domain),
                "time": messages.time + offset,
                "handed": np.where(messages.handed == NULL, NULL, messages.handed + offset),
                "bytes": messages.bytes,
            }
            tables.append(columns)
    return tables


def _measure_delays(rows: Table) -> Delays:
    """Return the delays of matched messages between domains. `rows` contains the receive of every send."""
    rows = take_rows(rows, sort_rows(rows["group"], rows["instance"]))
    sends, receives = take_rows(rows, rows["is_send"]), take_rows(rows, ~rows["is_send"])
    sender, receiver = (side["domain"].astype(np.int32) for side in (sends, receives))
    sent, received = sends["handed"], receives["handed"]
    link, _ = encode_rows(sends["link"], np.where(sends["bytes"] == NULL, receives["bytes"], sends["bytes"]))
    shown = (sender != receiver) & (sent != NULL) & (received != NULL)
    columns = (link, sends["is_forward"], sender, receiver, sent, received)
    return Delays(*(column[shown] for column in columns))


# ---- collectives -----------------------------------------------------------------------------------------------------


def list_crossings(operations: Operations) -> Table:
    """Return the parts of operations with ranks in several domains, as rows for `match_reports`.

    Operations without a known communicator prove nothing about causality: their ranks never enter.
    """
    table, count = operations.table, np.diff(operations.first)
    domain = table.domain[operations.part]  # sorted within an operation
    crosses = domain[operations.first[:-1]] != domain[operations.first[1:] - 1]
    crosses &= ~table.mark_ordered(operations.leader)
    number = np.repeat(np.arange(len(operations)), count)
    kept = np.repeat(crosses, count)
    part, number = operations.part[kept], number[kept]
    enters, leaves = mark_roles(table, part)
    synchronising = table.kind[part] == SYNCHRONISING
    return {
        "group": operations.group[number].astype(np.int64),
        "instance": number,
        "fits": synchronising,
        "domain": table.domain[part],
        "enter": np.where(enters, table.begin[part], NEVER_ENTERS),
        "leave": np.where(leaves | synchronising, table.end[part], NEVER_LEAVES),
    }


def mark_roles(table: PartTable, part: IntArray) -> tuple[BoolArray, BoolArray]:
    """Mark the parts for which other ranks wait, and the parts whose rank waits for others, in known communicators."""
    kind, known, is_root = table.kind[part], table.has_communicator[part], table.is_root[part]
    enters = known & ((kind == SYNCHRONISING) | ((kind == FROM_ROOT) & is_root) | ((kind == TO_ROOT) & ~is_root))
    leaves = known & ((kind == SYNCHRONISING) | ((kind == FROM_ROOT) & ~is_root) | ((kind == TO_ROOT) & is_root))
    return enters, leaves


# ---- causality -------------------------------------------------------------------------------------------------------

_ROUNDS = 40
"""Most times that clocks are moved. A choice: lines that break causality after that stay as they were."""
_UNCHECKED = np.iinfo(np.int64).min


class Violations(NamedTuple):
    """Number of operations that break causality, number of checked operations, and the largest violation (ns)."""

    broken: int
    checked: int
    worst: float


class Lines(NamedTuple):
    """Corrections of n clocks: offset (ns) at the time `since` (ns, UTC of the matches), and drift from then."""

    offset: FloatArray
    drift: FloatArray
    since: FloatArray


def find_violations(matches: Matches, lines: Lines) -> Violations:
    """Count the operations that break causality."""
    gap = _find_gaps(matches, lines)[0]
    return Violations(int((gap > 0).sum()), int((gap != _UNCHECKED).sum()), float(gap.max(initial=0)))


def move_within_bounds(matches: Matches, lines: Lines, limit: FloatArray, fixed: BoolArray) -> Lines:
    """Return lines moved as little as causality requires; unchanged if a clock would move by more than `limit` (ns).

    `fixed` clocks do not move.
    """
    moved = Lines(lines.offset.copy(), lines.drift, lines.since)
    for _ in range(_ROUNDS):
        gap, late, early = _find_gaps(matches, moved)
        broken = (gap > 0) & (late != early)
        missing = np.zeros((fixed.size, fixed.size))
        np.maximum.at(missing, (late[broken], early[broken]), gap[broken])
        if not missing.any():
            break
        _push_apart(missing, fixed, moved.offset)
    if (np.abs(moved.offset - lines.offset) > limit).any():
        return lines
    return moved if find_violations(matches, moved).broken < find_violations(matches, lines).broken else lines


def _push_apart(missing: FloatArray, fixed: BoolArray, offset: FloatArray) -> None:
    """Move each pair of clocks apart by its missing time, the largest first.

    `missing`: the least time (ns) by which the clock of each row is behind the clock of each column.
    """
    late, early = np.nonzero(missing)
    for i in np.argsort(-missing[late, early], kind="stable"):
        a, b = late[i], early[i]
        moves_a, moves_b = not fixed[a], not fixed[b]
        by = (missing[a, b] + 1.0) / max(1, moves_a + moves_b)
        offset[a] += by * moves_a
        offset[b] -= by * moves_b


def _find_gaps(matches: Matches, lines: Lines) -> IntArray:
    """Return for each operation (3 x n) the time (ns) from the first to leave to the last to enter, and their clocks.

    The time is _UNCHECKED if no rank enters or none leaves.
    """
    gaps = np.zeros((3, len(matches)), np.int64)
    _fill_gaps(matches.first, matches.domain, matches.enter, matches.leave, lines, gaps)
    return gaps


@compiled
def _correct(time: int, clock: int, lines: Lines) -> int:
    """Return the corrected time, with the correction in whole ns as it will be applied."""
    return time + np.int64(np.rint(lines.offset[clock] + lines.drift[clock] * (time - lines.since[clock])))


@compiled
def _fill_gaps(
    first: IntArray, domain: Int32Array, enter: IntArray, leave: IntArray, lines: Lines, gaps: IntTable
) -> None:
    for i in range(first.size - 1):
        last_enter, first_leave = NEVER_ENTERS, NEVER_LEAVES
        for k in range(first[i], first[i + 1]):
            if enter[k] != NEVER_ENTERS:
                time = _correct(enter[k], np.int64(domain[k]), lines)
                if time > last_enter:
                    last_enter, gaps[2, i] = time, domain[k]
            if leave[k] != NEVER_LEAVES:
                time = _correct(leave[k], np.int64(domain[k]), lines)
                if time < first_leave:
                    first_leave, gaps[1, i] = time, domain[k]
        is_checked = last_enter != NEVER_ENTERS and first_leave != NEVER_LEAVES
        gaps[0, i] = last_enter - first_leave if is_checked else _UNCHECKED
