"""Finds evidence on clocks in messages: no message is received before it was sent, and each has a delay.

The time between a send and its receive, each by its own clock, is the delay of the link plus the difference of the
clocks. For messages in the other direction, the difference has the opposite sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys2prv_ng.arrays.row_keys import encode_rows
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


def match_messages(reports: Sequence[tuple[Sequence[Messages], int, int]]) -> tuple[pd.DataFrame, Delays]:
    """Match the k-th send with the k-th receive of each channel that has as many sends as receives.

    `reports`: the messages of each report, the domain of its clock, and the offset (ns) of its times to UTC. Return
    rows for `match_reports`, and the delays between domains.
    """
    rows = _gather(reports)
    if not len(rows):
        return make_empty(), NO_DELAYS
    rows = rows.sort_values("order", kind="stable")
    rows["instance"] = rows.groupby(["group", "is_send"]).cumcount()
    sends = rows.groupby("group")["is_send"].transform("sum")
    rows = rows[2 * sends == rows.groupby("group")["is_send"].transform("size")].copy()
    rows["fits"] = False
    rows["enter"] = np.where(rows["is_send"], rows["time"], NEVER_ENTERS)
    rows["leave"] = np.where(rows["is_send"], NEVER_LEAVES, rows["time"])
    return rows[[*COLUMNS]], _measure_delays(rows)


def make_empty() -> pd.DataFrame:
    return pd.DataFrame({name: np.zeros(0, np.int64) for name in COLUMNS}).astype({"fits": np.bool_})


def _gather(reports: Sequence[tuple[Sequence[Messages], int, int]]) -> pd.DataFrame:
    """Return the sends and receives of all reports, with numbers of channels and links that all reports share."""
    channels: dict[str, int] = {}
    links: dict[str, int] = {}
    tables = [pd.DataFrame()]
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
                "domain": domain,
                "time": messages.time + offset,
                "handed": np.where(messages.handed == NULL, NULL, messages.handed + offset),
                "bytes": messages.bytes,
            }
            tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def _measure_delays(rows: pd.DataFrame) -> Delays:
    """Return the delays of matched messages between domains. `rows` contains the receive of every send."""
    rows = rows.sort_values(["group", "instance"], kind="stable")
    is_send = rows["is_send"].to_numpy(np.bool_)
    sends, receives = rows[is_send], rows[~is_send]
    sender, receiver = (side["domain"].to_numpy(np.int32) for side in (sends, receives))
    sent, received = (side["handed"].to_numpy(np.int64) for side in (sends, receives))
    size = sends["bytes"].to_numpy(np.int64)
    size = np.where(size == NULL, receives["bytes"].to_numpy(np.int64), size)
    link, _ = encode_rows(sends["link"].to_numpy(np.int64), size)
    shown = (sender != receiver) & (sent != NULL) & (received != NULL)
    columns = (link.astype(np.int64), sends["is_forward"].to_numpy(np.bool_), sender, receiver, sent, received)
    return Delays(*(column[shown] for column in columns))
