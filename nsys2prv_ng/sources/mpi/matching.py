"""Matches the MPI sends and receives of all reports.

MPI keeps the order of the messages of a stream, that is, of one communicator, sender and receiver. The k-th send with a
tag meets the k-th receive with that tag, in the order in which receives were posted. A receive with any tag takes the
first message that no earlier receive took (MPI 4.1, 3.5: without receives from any source, matching is deterministic).

Reports do not record the sender that a receive from any source met. So such a receive is matched only if all senders
but one are ruled out. If it is not matched, the sends that it may have taken stay unmatched as well. If a capture
started after MPI_Init, messages may have been under way: if the numbers of sends and receives differ, it is unknown
which of them meet. By MPI_Finalize, every message has been received (MPI 4.1, 11.2.2), which helps if reports of some
ranks are missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.row_keys import encode_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray, mark, pick, put
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.operations.parts import MessagePairs
from nsys2prv_ng.records.columns import make_communications
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.sources.mpi.communicators import UNKNOWN, AllCommunicators
from nsys2prv_ng.sources.mpi.messages import ANY_SOURCE, NOBODY, MessageEnds, MpiMessages
from nsys2prv_ng.sources.shared import reasons
from nsys2prv_ng.sources.shared.source import Result

# Reasons why a send or receive is unmatched. The first reasons also replace the task of a partner.
_REASONS = (
    *(reasons.TO_NOBODY, reasons.NO_PARTNER, reasons.NO_COMMUNICATOR, reasons.PARTNER_NOT_HERE, reasons.NO_RECEIVE),
    *(reasons.NO_SEND, reasons.SEVERAL_SENDS, reasons.MAY_BE_TAKEN, reasons.UNEQUAL_ENDS, reasons.NO_TAG),
)
TO_NOBODY, NO_PARTNER, NO_COMMUNICATOR, NOT_HERE, NO_RECEIVE, NO_SEND, SEVERAL, TAKEN, PARTIAL, NO_TAG = range(
    -2, -2 - len(_REASONS), -1
)

_ANY = -1
_STREAM = ["communicator", "source", "destination"]
_CHANNEL = [*_STREAM, "tag"]


class ReportMessages(NamedTuple):
    """Messages of one report, with the maps that place them in the trace.

    `keys`: keys of communicators; `MessageEnds.communicator` is an index into them. `rows`: row of the trace by place.
    `clock`: maps times of the report (ns) to times on the common clock.
    """

    messages: MpiMessages
    keys: Sequence[str]
    rows: IntArray
    clock: ClockMap


def match_messages(
    reports: Sequence[ReportMessages],
    communicators: AllCommunicators,
    task_of_row: IntArray,
    task_of_rank: Mapping[int, int],
    from_init: set[int],
    to_finalize: set[int],
) -> tuple[Result, MessagePairs]:
    """Make a communication for each message with a known send and receive, and also return these messages.

    `from_init`: tasks with every call since MPI_Init. `to_finalize`: the tasks among them with every call until
    MPI_Finalize. `read` counts messages that were recorded on either side.
    """
    sends = _make_table([(r, r.messages.sends) for r in reports], communicators, task_of_row, task_of_rank)
    receives = _make_table([(r, r.messages.receives) for r in reports], communicators, task_of_row, task_of_rank)
    sends = sends.rename(columns={"task": "source", "partner": "destination"})
    receives = receives.rename(columns={"task": "destination", "partner": "source"})
    sends.loc[(sends["state"] == 0) & (sends["tag"] == _ANY), "state"] = NO_TAG  # only a receive may lack a tag

    barriers = _resolve_wildcards(sends, receives, _find_complete(communicators, task_of_rank), to_finalize)
    send_of_receive = _match_in_order(sends, receives, barriers, from_init)
    matched = np.flatnonzero(send_of_receive >= 0)
    result = Result(read=len(sends) + len(receives) - matched.size)
    for state in (sends["state"], receives["state"]):
        for code, count in state[state < 0].value_counts().items():
            result.drop(_REASONS[-2 - int(str(code))], count)
    early = sum(r.messages.started_before for r in reports)
    result.read += early
    result.drop(reasons.EARLY_REQUEST, early)

    matched = matched[(receives["done"].to_numpy() != NULL)[matched]]
    result.drop(reasons.NO_RECEIVE_END, int((send_of_receive >= 0).sum()) - matched.size)
    s, r = sends.iloc[send_of_receive[matched]], receives.iloc[matched]
    size = np.maximum(s["bytes"].to_numpy(), 0)
    send, receive = (s["posted_at"].to_numpy(), s["time"].to_numpy()), (r["row"].to_numpy(), r["done"].to_numpy())
    result.records.append(make_communications(*send, *receive, size, s["tag"].to_numpy()))
    columns = [t[name].to_numpy() for t in (s, r) for name in ("row", "time", "completing", "done")]
    return result, MessagePairs._make([*columns, size, s["posted_at"].to_numpy(), r["posted_at"].to_numpy()])


# ---- messages of all reports, with tasks and on one clock ------------------------------------------------------------


def _make_table(
    parts: Sequence[tuple[ReportMessages, MessageEnds]],
    communicators: AllCommunicators,
    task_of_row: IntArray,
    task_of_rank: Mapping[int, int],
) -> pd.DataFrame:
    """Make a table of the sends or receives of all reports, with the columns of `MessageEnds` on the common clock.

    `partner` is the task of the other side, ANY_SOURCE, or the reason why it is unknown. `state` is that reason, or 0.
    """
    tables = []
    for report, ends in parts:
        partner, number = _find_partners(ends, report.keys, communicators, task_of_rank)
        columns = {
            "task": task_of_row[report.rows[ends.posted_at]],
            "partner": partner,
            "state": np.where((partner < 0) & (partner != ANY_SOURCE), partner, 0),
            "communicator": number,
            "row": report.rows[ends.place],
            "time": report.clock(ends.time),
            "done": np.where(ends.done == NULL, NULL, report.clock(ends.done)),
            "completing": np.where(ends.completing == NULL, NULL, report.clock(ends.completing)),
            "posted_at": report.rows[ends.posted_at],
            "tag": np.where(ends.tag == NULL, _ANY, ends.tag),
            "bytes": ends.bytes,
        }
        tables.append(pd.DataFrame(columns, dtype=np.int64))
    return pd.concat(tables, ignore_index=True)


def _find_partners(
    ends: MessageEnds, keys: Sequence[str], communicators: AllCommunicators, task_of_rank: Mapping[int, int]
) -> tuple[IntArray, IntArray]:
    """Return (task of each partner, ANY_SOURCE, or the reason why it is unknown; number of its communicator or 0)."""
    codes, first = encode_rows(ends.communicator, ends.partner)
    partner = np.zeros(first.size, np.int64)
    distinct = zip(ends.communicator[first].tolist(), ends.partner[first].tolist(), strict=True)
    for i, (key, local) in enumerate(distinct):
        if local == NULL:
            partner[i] = NO_PARTNER
        elif local == NOBODY:
            partner[i] = TO_NOBODY
        elif keys[key] == UNKNOWN:
            partner[i] = NO_COMMUNICATOR
        elif local == ANY_SOURCE:
            partner[i] = ANY_SOURCE
        else:
            world = communicators.get_world_rank(keys[key], local)
            partner[i] = NOT_HERE if world is None else task_of_rank.get(world, NOT_HERE)
    number = np.array([communicators.number.get(key, 0) for key in keys], np.int64)
    return partner[codes], number[ends.communicator]


def _find_complete(communicators: AllCommunicators, task_of_rank: Mapping[int, int]) -> set[int]:
    """Return the numbers of the communicators whose members are all known and in the trace."""
    return {
        communicators.number[key]
        for key, group in communicators.groups.items()
        if 0 < group.size == len(group.members) and all(rank in task_of_rank for rank in group.members.values())
    }


# ---- receives from any source ------------------------------------------------------------------------------------


def _resolve_wildcards(
    sends: pd.DataFrame, receives: pd.DataFrame, complete: set[int], to_finalize: set[int]
) -> pd.DataFrame:
    """Assign the only possible source to receives from any source; note in `state` if there is none, or several.

    Return barriers: the streams and tags from which receives with an unknown source may have taken messages, and the
    times from which they may have done so. A source is ruled out if receives that name it took all its messages. Ranks
    without a report are ruled out if the number of messages from ranks with a report equals the number of receives.
    """
    sent, named = sends[sends["state"] == 0], receives[(receives["source"] >= 0) & (receives["done"] != NULL)]
    any_tag = _find_unreceived(sent, named, _STREAM).assign(tag=_ANY)
    one_tag = _find_unreceived(sent, named, _CHANNEL)
    barriers = [_find_blind_barriers(sent, receives)]
    accounted = _find_accounted(any_tag, receives, to_finalize)
    key = ["communicator", "destination", "tag"]
    for candidates in (any_tag, one_tag):
        from_any = receives[receives["source"] == ANY_SOURCE]
        wild = from_any[(from_any["tag"] == _ANY) == (candidates is any_tag)]
        sources = candidates.groupby(key, as_index=False)["source"].agg(candidate="first", number="size")
        joined = wild[key].merge(sources, on=key, how="left")
        number = joined["number"].fillna(0).to_numpy()
        receiver = pd.MultiIndex.from_frame(wild[key[:2]])
        all_known = wild["communicator"].isin(complete).to_numpy() | receiver.isin(accounted)
        single = (number == 1) & all_known
        receives.loc[wild.index[single], "source"] = joined["candidate"].to_numpy()[single].astype(np.int64)
        receives.loc[wild.index[number == 0], "state"] = NO_SEND
        unsolved = wild[(number > 0) & ~single]
        receives.loc[unsolved.index, "state"] = SEVERAL
        first = unsolved.groupby(key, as_index=False)["time"].min()
        barriers.append(first.merge(candidates, on=key)[[*_CHANNEL, "time"]])
    return pd.concat(barriers, ignore_index=True).astype(np.int64)


def _find_unreceived(sent: pd.DataFrame, named: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    """Return the streams or channels with more sends than completed receives that name the source, and the excess."""
    sent_number, taken = sent.groupby(key).size(), named.groupby(key).size()
    left = sent_number - taken.reindex(sent_number.index, fill_value=0)
    return left[left > 0].rename("left").reset_index()


def _find_accounted(streams: pd.DataFrame, receives: pd.DataFrame, to_finalize: set[int]) -> pd.MultiIndex:
    """Return (communicator, destination) if receives from any source took all remaining messages of their sources.

    Only sources and destinations with every call until MPI_Finalize count.
    """
    finished = streams[streams["source"].isin(to_finalize) & streams["destination"].isin(to_finalize)]
    left = finished.groupby(["communicator", "destination"])["left"].sum()
    wild = receives[(receives["source"] == ANY_SOURCE) & (receives["done"] != NULL)]
    taken = wild.groupby(["communicator", "destination"]).size()
    return left[left == taken.reindex(left.index, fill_value=0)].index


def _find_blind_barriers(sent: pd.DataFrame, receives: pd.DataFrame) -> pd.DataFrame:
    """Return barriers of receives without a recorded partner (MPI_Mrecv), which may take any message to their task."""
    blind = receives[receives["state"] == NO_PARTNER]
    streams = sent[_STREAM].drop_duplicates()
    known = blind["communicator"] > 0
    parts: list[pd.DataFrame] = []
    for key, mask in ((["communicator", "destination"], known), (["destination"], ~known)):
        first = blind[mask].groupby(key, as_index=False)["time"].min()
        parts.append(first.merge(streams, on=key).assign(tag=_ANY)[[*_CHANNEL, "time"]])
    return pd.concat(parts, ignore_index=True)


# ---- streams in order --------------------------------------------------------------------------------------------


def _match_in_order(sends: pd.DataFrame, receives: pd.DataFrame, barriers: pd.DataFrame, whole: set[int]) -> IntArray:
    """Return the index of the send that each receive took, or -1, and store the reason for -1 in `state` of both."""
    s = sends[sends["state"] == 0].sort_values("time", kind="stable")
    # A barrier counts from its time, before a receive at the same time.
    r = pd.concat([barriers, receives[receives["state"] == 0]], keys=["barrier", "receive"])
    r = r.sort_values("time", kind="stable")
    both = pd.concat([s[_CHANNEL], r[_CHANNEL]], ignore_index=True)
    stream, first_of_stream = encode_rows(*(both[name].to_numpy() for name in _STREAM))
    channel, first_of_channel = encode_rows(stream, both["tag"].to_numpy())
    channel = np.where(both["tag"] == _ANY, _ANY, channel)
    send_part, receive_part = slice(0, len(s)), slice(len(s), None)
    s_order = np.argsort(stream[send_part], kind="stable")
    r_order = np.argsort(stream[receive_part], kind="stable")
    s, r = s.iloc[s_order], r.iloc[r_order]
    s_stream, s_channel = stream[send_part][s_order], channel[send_part][s_order]
    r_stream, r_channel = stream[receive_part][r_order], channel[receive_part][r_order]
    is_receive = r.index.get_level_values(0) == "receive"

    source, destination = (both[name].to_numpy()[first_of_stream] for name in _STREAM[1:])
    apart = ~(np.isin(source, list(whole)) & np.isin(destination, list(whole)))
    stream_state, channel_state = _find_partial(
        s_stream, s_channel, r_stream[is_receive], r_channel[is_receive], apart, first_of_channel.size
    )
    by_channel = np.argsort(s_channel, kind="stable")
    head = np.searchsorted(s_channel[by_channel], np.arange(channel_state.size + 1)).astype(np.int64)
    taken, used = np.full(r_stream.size, -1), np.zeros(s_stream.size, np.bool_)
    r_state, s_state = np.zeros(r_stream.size, np.int64), np.zeros(s_stream.size, np.int64)
    sent, posted = _Ends(s_stream, s_channel, s_state), _Ends(r_stream, r_channel, r_state)
    streams = _Streams(stream_state, channel_state, by_channel, head, head[:-1].copy())
    _match_streams(sent, posted, is_receive, streams, used, taken)
    at = r.index.get_level_values(1)[is_receive]
    send_of_receive = put(pick(s.index.to_numpy(), taken[is_receive], -1), at, len(receives))
    receives.loc[at, "state"] = r_state[is_receive]
    sends.loc[s.index, "state"] = s_state
    return send_of_receive


def _find_partial(
    s_stream: IntArray, s_channel: IntArray, r_stream: IntArray, r_channel: IntArray, apart: BoolArray, channels: int
) -> tuple[IntArray, IntArray]:
    """Return the state of each stream and channel: PARTIAL if sends and receives do not add up, else 0.

    Only the streams in `apart`, which lack calls since MPI_Init, can be partial. A stream with receives of any tag is
    partial as a whole, any other stream by channel.
    """
    exact = r_channel != _ANY
    has_wildcard = mark(r_stream[~exact], apart.size)
    stream_of_channel = np.zeros(channels, np.int64)
    stream_of_channel[s_channel], stream_of_channel[r_channel[exact]] = s_stream, r_stream[exact]

    stream_state = np.where(apart & has_wildcard & _mark_unequal(s_stream, r_stream, apart.size), PARTIAL, 0)
    unequal = _mark_unequal(s_channel, r_channel[exact], channels)
    return stream_state, np.where((apart & ~has_wildcard)[stream_of_channel] & unequal, PARTIAL, 0)


def _mark_unequal(sent: IntArray, received: IntArray, length: int) -> BoolArray:
    """Mark the streams or channels with sends and receives, but different numbers of them."""
    sends, receives = np.bincount(sent, minlength=length), np.bincount(received, minlength=length)
    return np.asarray((sends != receives) & (sends > 0) & (receives > 0), np.bool_)


class _Ends(NamedTuple):
    """n sends or receives, sorted by stream and time: stream, channel, and the state that is to be set (0 at first)."""

    stream: IntArray
    channel: IntArray
    state: IntArray


class _Streams(NamedTuple):
    """States of streams and channels, 0 as long as all messages of one are known, and the sends of each channel.

    Channel c has `by_channel[head[c]:head[c + 1]]`; its next send is at `next_send` (head[:-1] at first).
    """

    stream_state: IntArray
    channel_state: IntArray
    by_channel: IntArray
    head: IntArray
    next_send: IntArray


@compiled
def _match_streams(
    sends: _Ends, receives: _Ends, is_receive: BoolArray, streams: _Streams, used: BoolArray, taken: IntArray
) -> None:
    """Match the receives of each stream in the order of posting. A barrier among them takes unknown sends.

    `used`: False for each send at first. Set `taken`, the send of each receive (-1 at first), and the states.
    """
    s_stream, s_channel, s_state = sends
    r_stream, r_channel, r_state = receives
    stream_state, channel_state, by_channel, head, next_send = streams
    cursor = 0
    uncertain = 0  # the state of the stream's least certain channel
    for i in range(r_stream.size):
        stream, channel = r_stream[i], r_channel[i]
        if i == 0 or stream != r_stream[i - 1]:
            uncertain = 0
            while cursor < s_stream.size and s_stream[cursor] < stream:
                cursor += 1
        if not is_receive[i]:
            uncertain = TAKEN
            if channel == _ANY:
                stream_state[stream] = TAKEN
            else:
                channel_state[channel] = TAKEN
            continue
        if channel == _ANY:
            if stream_state[stream] == 0 and uncertain != 0:
                stream_state[stream] = uncertain
            if stream_state[stream] != 0:
                r_state[i] = stream_state[stream]
                continue
            while cursor < s_stream.size and s_stream[cursor] == stream and used[cursor]:
                cursor += 1
            send = cursor if cursor < s_stream.size and s_stream[cursor] == stream else -1
        else:
            state = stream_state[stream] if stream_state[stream] != 0 else channel_state[channel]
            if state != 0:
                r_state[i] = state
                continue
            while next_send[channel] < head[channel + 1] and used[by_channel[next_send[channel]]]:
                next_send[channel] += 1
            send = by_channel[next_send[channel]] if next_send[channel] < head[channel + 1] else -1
        if send >= 0:
            used[send] = True
            taken[i] = send
        else:
            r_state[i] = NO_SEND
    for j in range(s_stream.size):
        if not used[j]:
            state = stream_state[s_stream[j]] if stream_state[s_stream[j]] != 0 else channel_state[s_channel[j]]
            s_state[j] = state if state != 0 else NO_RECEIVE
