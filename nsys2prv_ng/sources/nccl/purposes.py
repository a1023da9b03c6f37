"""Finds what the calls of a process on a communicator look like: gradients, sharded parameters, activations, experts.

This looks at one process and one report. Members and the other processes must agree (`axes.py`) before a communicator
gets a name. Every rule asks for evidence that the other uses cannot leave, so many calls fit none:

- Gradients and parameters have a list of sizes that repeats, with at least three large sizes (two if sharded), one of
  which comes once in each repetition: the embedding, or the last bucket. Or all calls follow each other without a
  kernel between them. An average is always over data.
- Activations have one size and are summed between the kernels of layers, so the kernels between two calls alternate.
  In a CUDA graph, they are captured one after the other.
- Stages send and receive, but not always in one group. Exchanges along a ring always do.
- Tokens go to all experts in one group, in sizes that change from call to call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.cuda import launch_calls
from nsys2prv_ng.sources.cuda.device_operations import GRAPH, KERNEL, locate
from nsys2prv_ng.sources.cuda.kernels import is_nccl
from nsys2prv_ng.sources.nccl.calls import NcclCalls
from nsys2prv_ng.sources.nccl.kernels import NcclKernels
from nsys2prv_ng.sources.shared.nccl_ranges import RECEIVE, SEND
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import NO_END

NO_PURPOSE, GRADIENTS, SHARDS, ACTIVATIONS, STAGES, EXPERTS = range(6)

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, SENT, RECEIVED, OTHER_KIND = range(6)
_KINDS = {
    "ncclAllReduce": ALL_REDUCE,
    "ncclAllGather": ALL_GATHER,
    "ncclReduceScatter": REDUCE_SCATTER,
    SEND: SENT,
    RECEIVE: RECEIVED,
}
_AVERAGE = "Avg"

LARGEST_SCALARS = 1024
"""Calls of so many bytes at most are barriers, norms and losses. They do not count."""
FEWEST_CALLS = 8
MOST_OF_ALL = 0.9
"""Share of the bytes, or of the calls, that counts as all of them."""
LARGE_SHARE = 0.01
"""Least share of the bytes that makes a size a large one."""
MEAN_AVERAGE = 65536
"""Least mean size of averages (bytes), which may be of metrics otherwise."""
LEAST_ALTERNATING, MOST_ALTERNATING = 0.15, 0.7
"""Share of the gaps that the two most frequent sets of kernels have each, at least and at most."""
LARGEST_CAPTURED = 4 << 20
"""Largest size (bytes) that counts as an activation in a CUDA graph."""
MOST_BETWEEN = 100
"""Most CUDA calls between two captured activations: a whole step has more."""
_LAGS = 4


class Uses(NamedTuple):
    """n calls of a process on a communicator, in the order in which they were made."""

    kind: IntArray
    bytes: IntArray
    is_average: BoolArray
    thread: IntArray
    group: IntArray
    peer: IntArray
    is_captured: BoolArray
    """Whether a CUDA graph launches its kernel."""
    kernels: IntArray
    """Number of kernels launched on the thread before the call, without NCCL's."""
    launched: IntArray
    """Sum of a random number for each of these kernels, by its name (modulo 2**64)."""
    calls: IntArray
    """Number of CUDA calls on the thread until the call starts."""
    calls_after: IntArray
    """The same until the call ends."""

    def take(self, which: BoolArray | IntArray) -> Uses:
        """Return the chosen calls."""
        return Uses(*(column[which] for column in self))  # type: ignore[arg-type]


# ---- rules -----------------------------------------------------------------------------------------------------------


def find_purpose(uses: Uses) -> int:
    """Return what the calls of a process on a communicator look like; NO_PURPOSE if they fit no rule."""
    uses = uses.take(uses.bytes > LARGEST_SCALARS)
    if uses.bytes.size < FEWEST_CALLS:
        return NO_PURPOSE
    share = np.bincount(uses.kind, uses.bytes, OTHER_KIND + 1) / uses.bytes.sum()
    if share[ALL_REDUCE] >= MOST_OF_ALL:
        return _judge_all_reduces(uses.take(uses.kind == ALL_REDUCE))
    if share[ALL_GATHER] + share[REDUCE_SCATTER] >= MOST_OF_ALL:
        return _judge_shards(uses.take(uses.kind == REDUCE_SCATTER), uses.take(uses.kind == ALL_GATHER))
    if share[SENT] + share[RECEIVED] >= MOST_OF_ALL:
        return _judge_messages(uses.take((uses.kind == SENT) | (uses.kind == RECEIVED)))
    return NO_PURPOSE


def _judge_all_reduces(uses: Uses) -> int:
    if uses.bytes.size < FEWEST_CALLS:
        return NO_PURPOSE
    if uses.bytes[uses.is_average].sum() >= MOST_OF_ALL * uses.bytes.sum():
        return GRADIENTS if uses.bytes.mean() >= MEAN_AVERAGE else NO_PURPOSE
    if uses.is_average.any():
        return NO_PURPOSE
    if _looks_inside_layers(uses):
        return ACTIVATIONS
    large, has_single = _find_list(uses.bytes)
    between, kernels = _find_gaps(uses)
    follow = between.size > 0 and kernels.any() and float((kernels == 0).mean()) >= MOST_OF_ALL
    return GRADIENTS if large >= 3 and (has_single or follow) else NO_PURPOSE


def _judge_shards(scattered: Uses, gathered: Uses) -> int:
    if min(scattered.bytes.size, gathered.bytes.size) < FEWEST_CALLS:
        return NO_PURPOSE
    if scattered.is_average.all():
        return SHARDS if scattered.bytes.mean() >= MEAN_AVERAGE else NO_PURPOSE
    sizes = np.unique(scattered.bytes)
    # Gradients may have twice as many bytes as parameters have.
    has_parameters = np.isin(sizes, gathered.bytes).all() or np.isin(sizes, 2 * gathered.bytes).all()
    large, has_single = _find_list(scattered.bytes)
    is_sharded = has_parameters and large >= 2 and has_single and not scattered.is_average.any()
    return SHARDS if is_sharded else NO_PURPOSE


def _judge_messages(uses: Uses) -> int:
    if (uses.peer == NULL).any():
        return NO_PURPOSE
    sends = uses.kind == SENT
    group, code = np.unique(uses.group, return_inverse=True)
    sent, received = (np.bincount(code[side], minlength=group.size) for side in (sends, ~sends))
    if int(((sent == 0) | (received == 0)).sum()) >= 2 and min(sent.sum(), received.sum()) >= FEWEST_CALLS // 2:
        return STAGES
    peers = np.unique(uses.peer[sends]).size
    _, pairs = find_distinct_rows(code[sends], uses.peer[sends])
    reached = np.bincount([number for number, _ in pairs], minlength=group.size)
    if peers < 2 or float(((reached == peers) & (sent == received)).mean()) < MOST_OF_ALL:
        return NO_PURPOSE
    peer, size = uses.peer[sends], uses.bytes[sends]
    order = np.argsort(peer, kind="stable")
    same = peer[order][1:] == peer[order][:-1]
    changes = size[order][1:][same] != size[order][:-1][same]
    return EXPERTS if changes.size and changes.mean() >= 0.5 and np.unique(size).size >= 4 else NO_PURPOSE


def _find_list(sizes: IntArray) -> tuple[int, bool]:
    """Return how many large sizes a repeating list of sizes has, and whether one of them occurs once in the list.

    (0, False) if the sizes do not repeat, or a repetition is not in the calls twice.
    """
    values, codes, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    again = np.flatnonzero(counts >= 2)
    if again.size < 2:
        return 0, False
    at = np.flatnonzero(codes == again[np.argmin(counts[again])])
    lags = {int(np.median(at[k:] - at[:-k])) for k in range(1, min(_LAGS + 1, at.size))}
    fits = [(float((sizes[lag:] == sizes[:-lag]).mean()), -lag) for lag in lags if 2 * lag <= sizes.size]
    if not fits or max(fits)[0] < MOST_OF_ALL:
        return 0, False
    often = counts * -max(fits)[1] / sizes.size
    large = values * counts >= LARGE_SHARE * sizes.sum()
    return int((large & (counts >= 2)).sum()), bool((large & (np.abs(often - 1) < 0.5)).any())


def _find_gaps(uses: Uses) -> tuple[IntArray, IntArray]:
    """Return, for each call before another of its thread, the sum for the kernels between them and their number."""
    order = np.argsort(uses.thread, kind="stable")
    follows = uses.thread[order][1:] == uses.thread[order][:-1]
    launched, kernels = (np.diff(column[order])[follows] for column in (uses.launched, uses.kernels))
    return launched, kernels


def _looks_inside_layers(uses: Uses) -> bool:
    """Return whether calls are of one size and between the kernels of layers."""
    values, counts = np.unique(uses.bytes, return_counts=True)
    main = values[np.argmax(values * counts)]
    if counts.max() * main < 0.95 * uses.bytes.sum() or counts.max() < 2 * FEWEST_CALLS:
        return False
    uses = uses.take(uses.bytes == main)
    if uses.is_captured.all():
        one = bool((uses.thread == uses.thread[0]).all())
        between = uses.calls[1:] - uses.calls_after[:-1]
        return one and main <= LARGEST_CAPTURED and bool(((between > 0) & (between <= MOST_BETWEEN)).all())
    between, kernels = _find_gaps(uses)
    between = between[kernels > 0]
    if between.size < FEWEST_CALLS or between.size < MOST_OF_ALL * kernels.size:
        return False
    often = np.sort(np.unique(between, return_counts=True)[1])[::-1] / between.size
    return bool(often.size >= 2 and often[0] <= MOST_ALTERNATING and often[1] >= LEAST_ALTERNATING)


# ---- calls of a report -----------------------------------------------------------------------------------------------


def find_purposes(
    reader: ReportReader, calls: NcclCalls, table: pd.DataFrame, kernel: NcclKernels, pairs: pd.DataFrame
) -> pd.DataFrame:
    """Return `communicator`, `place` (a thread) and `purpose` for each process and communicator of a report.

    `pairs`: indices of kernels and of their calls (rows of the table).
    """
    kind = np.array([_KINDS.get(name, OTHER_KIND) for name in calls.names], np.int64)
    average = np.array([*(name == _AVERAGE for name in calls.payload.operations), False], np.bool_)
    has_kernel = np.zeros(len(table), np.bool_)
    has_kernel[pairs["call"].to_numpy(np.int64)] = True
    tid = calls.ranges.global_tid[calls.shown]
    begin, end = (table[name].to_numpy(np.int64) for name in ("begin", "end"))
    end = np.where(end == NO_END, begin, end)
    has_graphs = reader.is_in_report(GRAPH) or bool((kernel.graph_node != NULL).any())
    before, until, after = _count_launches(reader, tid, begin, end)
    columns = {name: table[name].to_numpy(np.int64) for name in ("group", "peer", "bytes", "operation", "name")}
    uses = Uses(
        kind=kind[columns["name"]],
        bytes=np.maximum(columns["bytes"], 0),
        is_average=average[columns["operation"]],
        thread=tid,
        group=columns["group"],
        peer=columns["peer"],
        is_captured=~has_kernel & has_graphs,
        kernels=before[0],
        launched=before[1],
        calls=until,
        calls_after=after,
    )
    used = np.flatnonzero(table["communicator"].to_numpy(np.int64) >= 0)
    used = used[np.argsort(begin[used], kind="stable")]
    keys = [table[name].to_numpy(np.int64)[used] for name in ("communicator", "process")]
    code, distinct = find_distinct_rows(*keys)
    place = table["place"].to_numpy(np.int64)
    rows = []
    for number, (communicator, _) in enumerate(distinct):
        at = used[code == number]
        rows.append((int(communicator), int(place[at[0]]), find_purpose(uses.take(at))))
    return pd.DataFrame(rows, columns=["communicator", "place", "purpose"], dtype=np.int64)


def _count_launches(
    reader: ReportReader, thread: IntArray, begin: IntArray, end: IntArray
) -> tuple[tuple[IntArray, IntArray], IntArray, IntArray]:
    """Return `kernels` and `launched`, `calls` and `calls_after` of `Uses` for NCCL's calls, from thread and times."""
    recorded = reader.once(launch_calls.read_recorded_calls)
    index, names = reader.names(reader.columns(KERNEL)["shortName"])
    numbers = np.random.default_rng(0).integers(np.iinfo(np.int64).max, size=len(names))
    counts = np.array([not is_nccl(name) for name in names], np.bool_)
    call = reader.once(locate).take(KERNEL, reader.once(launch_calls.find_launches))
    own = np.flatnonzero((call >= 0) & counts[index])
    launches = recorded.global_tid[call[own]], recorded.begin[call[own]], numbers[index[own]]
    kernels, launched, until, after = (np.zeros(thread.size, np.int64) for _ in range(4))
    for tid in np.unique(thread).tolist():
        at, these = np.flatnonzero(thread == tid), np.flatnonzero(launches[0] == tid)
        these = these[np.argsort(launches[1][these], kind="stable")]
        kernels[at] = np.searchsorted(launches[1][these], begin[at])
        launched[at] = np.concatenate([[0], np.cumsum(launches[2][these])])[kernels[at]]
        times = np.sort(recorded.begin[recorded.global_tid == tid])
        until[at], after[at] = np.searchsorted(times, begin[at]), np.searchsorted(times, end[at])
    return (kernels, launched), until, after
