"""Finds evidence on clocks in messages: no message is received before it was sent, and each has a delay.

The time between a send and its receive, each by its own clock, is the delay of the link plus the difference of the
clocks. For messages in the other direction, the difference has the opposite sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.groups import Table, join_tables, take_rows
from nsys2prv_ng.arrays.row_keys import count_earlier, encode_rows, sort_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.operations.parts import Messages
from nsys2prv_ng.report.database import NULL

NEVER_LEAVES, NEVER_ENTERS = np.iinfo(np.int64).max, np.iinfo(np.int64).min


class Delays(NamedTuple):
    """n messages between clocks. Times are ns of uncorrected UTC.

    A link is two ranks and a size: its messages may take equally long in both directions.
    """

    link: IntArray
    is_forward: BoolArray
    """Whether a message went in the first of the two directions of its link."""
    sender: npt.NDArray[np.int32]
    """Domain of the clock."""
    receiver: npt.NDArray[np.int32]
    sent: IntArray
    received: IntArray


_NONE = np.zeros(0, np.int64)
NO_DELAYS = Delays(_NONE, _NONE.astype(np.bool_), _NONE.astype(np.int32), _NONE.astype(np.int32), _NONE, _NONE)

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
