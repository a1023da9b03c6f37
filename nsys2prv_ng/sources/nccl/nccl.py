"""Payloads of NCCL's calls and kernels: communicator, bytes, operation, root and peers.

The calls themselves are ranges of NVTX's domain NCCL, which the source `nvtx` writes. The payload of a call is given
here with the same begin and end, on the row of the thread; and with the kernel that carries it out, together with those
of all its calls, on the row of the stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records.columns import Pair, make_events
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.cuda import kernels
from nsys2prv_ng.sources.cuda import launch_calls as calls
from nsys2prv_ng.sources.nccl import (
    calls as nccl_calls,
)
from nsys2prv_ng.sources.nccl import (
    collectives as nccl_collectives,
)
from nsys2prv_ng.sources.nccl import (
    kernels as nccl_kernels,
)
from nsys2prv_ng.sources.nccl import (
    payload as nccl_payload,
)
from nsys2prv_ng.sources.nccl.messages import NcclJoinData, join, name_rank
from nsys2prv_ng.sources.nvtx import events as nvtx_events
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import NO_END, Result
from nsys2prv_ng.sources.shared.source import EventRows, Source

_TYPES = (
    types.NCCL_COMMUNICATOR,
    types.NCCL_BYTES,
    types.NCCL_OPERATION,
    types.NCCL_ROOT,
    types.NCCL_SEND_PEER,
    types.NCCL_SEND_BYTES,
    types.NCCL_RECEIVE_PEER,
    types.NCCL_RECEIVE_BYTES,
    types.NCCL_SEQUENCE,
    types.NCCL_CALLS,
)
"""In the order in which they are on a line."""
_POSITION = {event_type: i for i, event_type in enumerate(_TYPES)}
_SUMMED = [_POSITION[t] for t in (types.NCCL_BYTES, types.NCCL_SEND_BYTES, types.NCCL_RECEIVE_BYTES)]

_COLLECTIVE, _SENDING, _RECEIVING = range(3)


def read(reader: ReportReader) -> Result:
    """Payloads of the calls that have one, then those of NCCL's kernels."""
    result = Result()
    found = nccl_calls.read_calls(reader, result)
    kernel = nccl_kernels.read_kernels(reader, found.ranges)
    table = _table(reader, found)
    rank_names: dict[str, tuple[str, int]] = {}
    words = _words(reader.labels, found.payload, table, rank_names)
    _write(reader.labels, result, PayloadOwners.of(table), words)

    pairs = _kernels_of_calls(result, found, kernel, table)
    used, owner = np.unique(pairs["kernel"], return_inverse=True)
    bearers = PayloadOwners(kernel.place[used], kernel.begin[used], kernel.end[used])
    _write(reader.labels, result, bearers, _words_of_kernels(words, owner, pairs["call"].to_numpy(np.int64)))
    result.shared = _shared(found.payload, rank_names, table, kernel, pairs)
    ranked = table.assign(rank=found.payload.rank)
    known = found.names, found.payload.communicators
    result.evidence = nccl_collectives.collect_evidence(reader.places, *known, ranked, kernel, pairs)
    return result


@dataclass(frozen=True)
class PayloadOwners:
    """What bears payloads, calls or kernels of n: place, begin and end (ns), NO_END where there is no end."""

    place: IntArray
    begin: IntArray
    end: IntArray

    @classmethod
    def of(cls, table: pd.DataFrame) -> PayloadOwners:
        return cls(*(table[name].to_numpy(np.int64) for name in ("place", "begin", "end")))


def _table(reader: ReportReader, found: nccl_calls.NcclCalls) -> pd.DataFrame:
    """The calls that are shown: who, when, what; NULL for what a payload does not say, -1 for no communicator."""
    ranges, payload = found.ranges.take(found.shown), found.payload
    names = np.array(found.names, dtype=object)[ranges.name]
    is_collective = np.array([name in nccl_calls.COLLECTIVES for name in found.names], np.bool_)[ranges.name]
    is_message = (names == nccl_calls.SEND) | (names == nccl_calls.RECEIVE)
    one_sided = is_message | (payload.peer != NULL)
    table: pd.DataFrame = pd.DataFrame(
        {
            "place": reader.places.threads(ranges.global_tid, application=True),
            "process": get_process(ranges.global_tid),
            "begin": ranges.begin,
            "end": ranges.end,
            "name": ranges.name,
            "launch": found.launch[found.shown],
            "is_message": is_message,
            "direction": np.where(one_sided, np.where(names == nccl_calls.RECEIVE, _RECEIVING, _SENDING), _COLLECTIVE),
            "communicator": payload.communicator,
            "bytes": payload.bytes,
            "operation": payload.operation,
            "root": payload.root,
            "peer": payload.peer,
        }
    )
    numbered = table[(is_collective | is_message) & (payload.communicator >= 0)].sort_values("begin", kind="stable")
    key = ["process", "communicator", "direction", "peer"]
    table["sequence"] = numbered.groupby(key).cumcount().reindex(table.index, fill_value=-1).astype(np.int64) + 1
    return table


# ---- types and values ------------------------------------------------------------------------------------------------


def _words(
    labels: Labels, payload: nccl_payload.Payloads, table: pd.DataFrame, rank_names: dict[str, tuple[str, int]]
) -> pd.DataFrame:
    """Type:value pairs of the calls: `owner` (row of the table), `type` (position in _TYPES), `value`.

    `rank_names` is filled with the communicator and rank that each name of a rank stands for.
    """
    column = {name: table[name].to_numpy(np.int64) for name in ("direction", "communicator", "bytes", "sequence")}
    parts = []

    def add(event_type: EventType, value: IntArray, present: BoolArray) -> None:
        owner = np.flatnonzero(present)
        parts.append(pd.DataFrame({"owner": owner, "type": _POSITION[event_type], "value": value[owner]}))

    def add_names(event_type: EventType, names: list[str], index: IntArray) -> None:
        ids = labels.name_ids(event_type.names, names)
        add(event_type, np.append(ids, 0)[index], index >= 0)

    def add_ranks(event_type: EventType, rank: IntArray, present: BoolArray) -> None:
        owner = np.flatnonzero(present & (rank != NULL))
        codes, distinct = find_distinct_rows(column["communicator"][owner], rank[owner])
        of_ranks = [(payload.communicators[c] if c >= 0 else "", r) for c, r in distinct]
        names = [name_rank(*of_rank) for of_rank in of_ranks]
        rank_names.update(zip(names, of_ranks, strict=True))
        index = np.full(rank.size, -1, np.int64)
        index[owner] = codes
        add_names(event_type, names, index)

    has_bytes = column["bytes"] != NULL
    add_names(types.NCCL_COMMUNICATOR, payload.communicators, column["communicator"])
    add_names(types.NCCL_OPERATION, payload.operations, table["operation"].to_numpy(np.int64))
    add_ranks(types.NCCL_ROOT, table["root"].to_numpy(np.int64), np.ones(len(table), np.bool_))
    for direction, peer, size in (
        (_COLLECTIVE, None, types.NCCL_BYTES),
        (_SENDING, types.NCCL_SEND_PEER, types.NCCL_SEND_BYTES),
        (_RECEIVING, types.NCCL_RECEIVE_PEER, types.NCCL_RECEIVE_BYTES),
    ):
        of_direction = column["direction"] == direction
        add(size, column["bytes"], of_direction & has_bytes)
        if peer is not None:
            add_ranks(peer, table["peer"].to_numpy(np.int64), of_direction)
    add(types.NCCL_SEQUENCE, column["sequence"], column["sequence"] > 0)
    words: pd.DataFrame = pd.concat(parts, ignore_index=True).astype(np.int64)
    return words


def _words_of_kernels(words: pd.DataFrame, owner: IntArray, call: IntArray) -> pd.DataFrame:
    """Pairs of kernels, of which `owner` has `call`: sums of bytes, lowest number, each other value once."""
    of_kernels = pd.DataFrame({"kernel": owner, "owner": call}).merge(words, on="owner")
    of_kernels = of_kernels.drop(columns="owner").rename(columns={"kernel": "owner"})
    key = ["owner", "type"]
    is_summed = of_kernels["type"].isin(_SUMMED)
    is_number = of_kernels["type"] == _POSITION[types.NCCL_SEQUENCE]
    count = pd.DataFrame({"owner": np.unique(owner), "type": _POSITION[types.NCCL_CALLS], "value": np.bincount(owner)})
    parts = [
        of_kernels[is_summed].groupby(key, as_index=False)["value"].sum(),
        of_kernels[is_number].groupby(key, as_index=False)["value"].min(),
        of_kernels[~is_summed & ~is_number].drop_duplicates(),
        count,
    ]
    all_words: pd.DataFrame = pd.concat(parts, ignore_index=True).astype(np.int64)
    return all_words


def _write(labels: Labels, result: Result, bearers: PayloadOwners, words: pd.DataFrame) -> None:
    """Lines with the pairs of each bearer, every one of which has some; bytes end with it.

    Bearers with the same types are written together: there are few such sets, and their lines are of one form.
    """
    n = bearers.place.size
    if not n:
        return
    owner, kind = words["owner"].to_numpy(), words["type"].to_numpy()
    counts = np.bincount(owner * len(_TYPES) + kind, minlength=n * len(_TYPES)).reshape(n, len(_TYPES))
    value = words["value"].to_numpy()[np.lexsort((words["value"], kind, owner))]
    first = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
    form_of, forms = find_distinct_rows(*counts.T)
    for number, form in enumerate(forms):
        rows = np.flatnonzero(form_of == number)
        of_line = np.repeat([labels.handle(t) if form[i] else 0 for i, t in enumerate(_TYPES)], form)
        opening = [Pair(int(handle), value[first[rows] + i]) for i, handle in enumerate(of_line)]
        closing = [labels.handle(_TYPES[i]) for i in _SUMMED if form[i]]
        place, begin, end = bearers.place[rows], bearers.begin[rows], bearers.end[rows]
        if closing:
            result.add_intervals(place, begin, end, opening, closing)
        else:
            result.records.append(make_events(place, begin, opening))


# ---- kernels ---------------------------------------------------------------------------------------------------------


def _kernels_of_calls(
    result: Result, found: nccl_calls.NcclCalls, kernel: nccl_kernels.NcclKernels, table: pd.DataFrame
) -> pd.DataFrame:
    """Pairs of `kernel` and `call` (row of the table). Kernels are counted as read, those without a pair as dropped."""
    no_place = kernel.place < 0
    no_call = ~no_place & ~kernel.called
    outside = ~no_place & kernel.called & (kernel.range < 0)
    within = np.flatnonzero(~no_place & (kernel.range >= 0))
    result.read += kernel.place.size
    result.drop("kernel that was dropped", int(no_place.sum()))
    result.drop(f"kernel: {calls.NO_CALL}", int(no_call.sum()))
    result.drop("kernel launched outside of NCCL's calls", int(outside.sum()))

    alike = table.groupby(["name", "communicator", "bytes", "operation", "root", "peer"], sort=False).ngroup()
    function = np.array([nccl_kernels.parse_function(name) for name in found.names], np.int64)
    of_pair, call = nccl_kernels.assign_calls(
        nccl_kernels.SharedCalls(
            table["launch"].to_numpy(np.int64),
            function[table["name"].to_numpy(np.int64)] if len(table) else np.zeros(0, np.int64),
            alike.to_numpy(np.int64),
            table["communicator"].to_numpy(np.int64),
        ),
        nccl_kernels.SharedKernels(
            found.launch[kernel.range[within]],
            kernel.function[within],
            kernel.device[within],
            kernel.begin[within],
        ),
    )
    result.drop("kernel whose calls have no payload", within.size - np.unique(of_pair).size)
    pairs: pd.DataFrame = pd.DataFrame({"kernel": within[of_pair], "call": call})
    return pairs


# ---- for the other reports -------------------------------------------------------------------------------------------


def _shared(
    payload: nccl_payload.Payloads,
    rank_names: dict[str, tuple[str, int]],
    table: pd.DataFrame,
    kernel: nccl_kernels.NcclKernels,
    pairs: pd.DataFrame,
) -> NcclJoinData:
    uses = table[["communicator", "place", "begin"]].assign(
        rank=payload.rank, ranks=payload.ranks, devices=payload.devices
    )
    uses = uses[uses["communicator"] >= 0]
    uses = uses.groupby(["communicator", "place", "rank", "ranks", "devices"], as_index=False)["begin"].min()

    # A message is drawn from and to its kernel, where that is known; of several, the first.
    order = np.argsort(kernel.begin[pairs["kernel"]], kind="stable")
    first = pairs.iloc[order].drop_duplicates("call")
    on_kernel = np.full(len(table), -1, np.int64)
    on_kernel[first["call"]] = first["kernel"]
    rows = np.flatnonzero(table["is_message"] & (table["peer"] != NULL) & (table["communicator"] >= 0))
    messages = table.iloc[rows][["communicator", "place", "peer", "bytes", "begin", "end"]].copy()
    messages["receives"] = table["direction"].to_numpy()[rows] == _RECEIVING
    messages["order"] = messages["begin"]
    messages["caller"] = messages["place"]
    messages.loc[messages["end"] == NO_END, "end"] = messages["begin"]
    has_kernel = on_kernel[rows] >= 0
    of_kernel = on_kernel[rows][has_kernel]
    for name, values in (("place", kernel.place), ("begin", kernel.begin), ("end", kernel.end)):
        column = messages[name].to_numpy(np.int64).copy()
        column[has_kernel] = values[of_kernel]
        messages[name] = column
    return NcclJoinData(payload.communicators, payload.operations, rank_names, uses, messages)


SOURCE = Source(
    "nccl",
    "Payloads of NCCL's calls and kernels",
    (nvtx_events.TABLE, *nccl_payload.TABLES, calls.TABLE, kernels.TABLE),
    read,
    join,
    rows=(EventRows(nvtx_events.NVTX, "globalTid", names=nccl_calls.COMMUNICATING),),
    row="calls",
)
