"""Finds what the calls of a process on a communicator look like: gradients, sharded parameters, activations, experts.

This looks at one process and one report. Members and the other processes must agree (`communicators.py`) before a
communicator gets a name. Every rule asks for evidence that the other uses cannot leave, so many calls fit none:

- Gradients and parameters have a list of sizes that repeats, with at least three large sizes (two if sharded), one of
  which comes once in each repetition: the embedding, or the last bucket. Or all calls follow each other without a
  kernel between them. An average is always over data.
- Activations have one size and are summed between the kernels of layers, so the kernels between two calls alternate.
  Or each launch of a CUDA graph has many all-reduces with kernels between them, and there is one communicator. A report
  with whole graphs hides this; then the other members decide.
- Stages send and receive, but not always in one group. Exchanges along a ring always do.
- Tokens go to all experts in one group, in sizes that change from call to call.

The thresholds below are choices: no standard sets them. If one is too low, a communicator may get the name of another
use, unless members or the grid of ranks disagree; if it is too high, it keeps a number instead of a name.
docs/reference/sources.md has them for users.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, Index, IntArray, PlaceColumn
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.cuda.communication import is_nccl
from nsys2prv_ng.sources.cuda.device_operations import GRAPH, KERNEL, locate, read_recorded_calls
from nsys2prv_ng.sources.nccl.calls import CallTable, NcclCalls
from nsys2prv_ng.sources.nccl.kernels import FUNCTIONS, parse_function
from nsys2prv_ng.sources.shared.nccl_names import RECEIVE, SEND
from nsys2prv_ng.sources.shared.report_reader import ReportReader

NO_PURPOSE, GRADIENTS, SHARDS, ACTIVATIONS, STAGES, EXPERTS, HIDDEN = range(7)
"""HIDDEN: calls of one size, which may be activations, in a report whose CUDA graphs are traced as a whole."""

NO_LAYERS, LAYERS, WHOLE = range(3)
"""What the CUDA graphs of a process are: without layers between all-reduces, with layers, or traced as a whole."""

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, SENT, RECEIVED, OTHER_KIND, SPREAD = range(7)
"""SPREAD: broadcasts, with which programs of all kinds spread their first parameters. They do not count."""
_KINDS = {"ncclAllReduce": ALL_REDUCE, "ncclAllGather": ALL_GATHER, "ncclReduceScatter": REDUCE_SCATTER}
_KINDS |= {SEND: SENT, RECEIVE: RECEIVED, "ncclBroadcast": SPREAD, "ncclBcast": SPREAD}

LARGEST_SCALARS = 1024
"""Calls of so many bytes at most are barriers, norms and losses. They do not count."""
FEWEST_CALLS = 8
"""Fewest calls of a process that show a purpose, and all-reduces in a launch of a CUDA graph that show layers."""
FEWEST_INSIDE = 16
"""Fewest all-reduces of activations of a process."""
ONE_SIZE = 0.95
"""Share of the bytes in one size that counts as all of them."""
MOST_OF_ALL = 0.9
"""Share of the bytes, or of the calls, that counts as all of them."""
LARGE_SHARE = 0.01
"""Least share of the bytes that makes a size a large one."""
MEAN_AVERAGE = 65536
"""Least mean size of averages (bytes), which may be of metrics otherwise."""
LEAST_ALTERNATING, MOST_ALTERNATING = 0.15, 0.7
"""Share of the gaps that the two most frequent sets of kernels have each, at least and at most."""
_LAGS = 4
_OTHER_KERNEL = -2


class Purposes(NamedTuple):
    """The purpose of the calls of n pairs of a communicator (index) and a process.

    `place`: place of a thread of the process.
    """

    communicator: Annotated[IntArray, Index("communicators")]
    place: PlaceColumn
    purpose: IntArray


class Uses(NamedTuple):
    """n calls of a process on a communicator, in the order in which they were made.

    `kernels`: number of kernels launched on the thread before the call, without NCCL's. `launched`: sum of a random
    number for each of these kernels, by its name (modulo 2**64).
    """

    kind: IntArray
    bytes: IntArray
    is_average: BoolArray
    thread: IntArray
    group: IntArray
    peer: IntArray
    kernels: IntArray
    launched: IntArray

    def take(self, which: BoolArray | IntArray) -> Uses:
        """Return the chosen calls."""
        return Uses(*(column[which] for column in self))  # type: ignore[arg-type]


# ---- rules -----------------------------------------------------------------------------------------------------------


def find_purpose(uses: Uses, graphs: int = NO_LAYERS) -> int:
    """Return what the calls of a process on a communicator look like; NO_PURPOSE if they fit no rule.

    `graphs`: what the process's CUDA graphs are, if this is its only communicator.
    """
    uses = uses.take((uses.bytes > LARGEST_SCALARS) & (uses.kind != SPREAD))
    if uses.bytes.size < FEWEST_CALLS:
        return NO_PURPOSE
    share = np.bincount(uses.kind, uses.bytes, OTHER_KIND + 1) / uses.bytes.sum()
    if share[ALL_REDUCE] >= MOST_OF_ALL:
        return _judge_all_reduces(uses.take(uses.kind == ALL_REDUCE), graphs)
    if share[ALL_GATHER] + share[REDUCE_SCATTER] >= MOST_OF_ALL:
        return _judge_shards(uses.take(uses.kind == REDUCE_SCATTER), uses.take(uses.kind == ALL_GATHER))
    if share[SENT] + share[RECEIVED] >= MOST_OF_ALL:
        return _judge_messages(uses.take((uses.kind == SENT) | (uses.kind == RECEIVED)))
    return NO_PURPOSE


def _judge_all_reduces(uses: Uses, graphs: int) -> int:
    if uses.bytes.size < FEWEST_CALLS:
        return NO_PURPOSE
    if uses.bytes[uses.is_average].sum() >= MOST_OF_ALL * uses.bytes.sum():
        return GRADIENTS if uses.bytes.mean() >= MEAN_AVERAGE else NO_PURPOSE
    if uses.is_average.any():
        return NO_PURPOSE
    if _has_one_size(uses):
        if graphs == LAYERS or _alternates(uses):
            return ACTIVATIONS
        return HIDDEN if graphs == WHOLE else NO_PURPOSE
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


def _has_one_size(uses: Uses) -> bool:
    values, counts = np.unique(uses.bytes, return_counts=True)
    main = np.argmax(values * counts)
    return bool(counts[main] >= FEWEST_INSIDE and values[main] * counts[main] >= ONE_SIZE * uses.bytes.sum())


def _alternates(uses: Uses) -> bool:
    """Return whether the kernels between calls alternate, as in layers."""
    values, codes, counts = np.unique(uses.bytes, return_inverse=True, return_counts=True)
    between, kernels = _find_gaps(uses.take(codes == np.argmax(values * counts)))
    between = between[kernels > 0]
    if between.size < FEWEST_CALLS or between.size < MOST_OF_ALL * kernels.size:
        return False
    often = np.sort(np.unique(between, return_counts=True)[1])[::-1] / between.size
    return bool(often.size >= 2 and often[0] <= MOST_ALTERNATING and often[1] >= LEAST_ALTERNATING)


# ---- calls of a report -----------------------------------------------------------------------------------------------


def find_purposes(reader: ReportReader, calls: NcclCalls, table: CallTable) -> Purposes:
    """Return the purpose of the calls of each process and communicator of a report."""
    kind = np.array([_KINDS.get(name, OTHER_KIND) for name in calls.names], np.int64)
    average = np.array([*(name == "Avg" for name in calls.payload.operations), False], np.bool_)
    tid = calls.ranges.global_tid[calls.shown]
    launches = _read_launches(reader)
    count, launched = launches.count_before(tid, table.begin)
    uses = Uses(
        kind=kind[table.name],
        bytes=np.maximum(table.bytes, 0),
        is_average=average[table.operation],
        thread=tid,
        group=table.group,
        peer=table.peer,
        kernels=count,
        launched=launched,
    )
    used = np.flatnonzero(table.communicator >= 0)
    used = used[np.argsort(table.begin[used], kind="stable")]
    code, distinct = find_distinct_rows(table.communicator[used], table.process[used])
    communicators = Counter(process for _, process in distinct)
    found = np.zeros((len(distinct), 3), np.int64)
    for number, (communicator, process) in enumerate(distinct):
        at = used[code == number]
        graphs = _judge_graphs(reader, launches, process) if communicators[process] == 1 else NO_LAYERS
        found[number] = communicator, table.place[at[0]], find_purpose(uses.take(at), graphs)
    return Purposes(*found.T.copy())


class _Launches(NamedTuple):
    """n kernels whose launch was recorded: the call (index), its thread and time (ns), and the kernel's start (ns).

    `number`: a random number for the name. `function`: index into FUNCTIONS for NCCL's kernels (or NO_FUNCTION),
    _OTHER_KERNEL for all others.
    """

    call: IntArray
    thread: IntArray
    time: IntArray
    begin: IntArray
    number: IntArray
    function: IntArray
    in_graph: BoolArray

    def count_before(self, thread: IntArray, time: IntArray) -> tuple[IntArray, IntArray]:
        """Return `kernels` and `launched` of `Uses` for calls of NCCL on threads."""
        count, launched = np.zeros(thread.size, np.int64), np.zeros(thread.size, np.int64)
        for tid in np.unique(thread).tolist():
            at = np.flatnonzero(thread == tid)
            sent = np.flatnonzero((self.thread == tid) & (self.function == _OTHER_KERNEL))
            sent = sent[np.argsort(self.time[sent], kind="stable")]
            count[at] = np.searchsorted(self.time[sent], time[at])
            launched[at] = np.concatenate([[0], np.cumsum(self.number[sent])])[count[at]]
        return count, launched


def _read_launches(reader: ReportReader) -> _Launches:
    operations, recorded = reader.once(locate), reader.once(read_recorded_calls)
    columns = reader.columns(KERNEL)
    index, names = reader.names(columns["shortName"])
    numbers = np.random.default_rng(0).integers(np.iinfo(np.int64).max, size=len(names))
    functions = np.array([parse_function(name) if is_nccl(name) else _OTHER_KERNEL for name in names], np.int64)
    call = operations.take(KERNEL, operations.call)
    rows = np.flatnonzero(call >= 0)
    call, index = call[rows], index[rows]
    return _Launches(
        call,
        recorded.global_tid[call],
        recorded.begin[call],
        columns["start"][rows],
        numbers[index],
        functions[index],
        columns["graphNodeId"][rows] != NULL,
    )


def _judge_graphs(reader: ReportReader, launches: _Launches, process: int) -> int:
    """Return what the CUDA graphs of a process are."""
    if reader.is_in_report(GRAPH):
        return WHOLE
    rows = np.flatnonzero(launches.in_graph & (get_process(launches.thread) == process))
    rows = rows[np.lexsort((launches.begin[rows], launches.call[rows]))]
    function, call = launches.function[rows], launches.call[rows]
    is_nccl_kernel = function != _OTHER_KERNEL
    if not is_nccl_kernel.any() or (function[is_nccl_kernel] != FUNCTIONS.index("AllReduce")).any():
        return NO_LAYERS
    reduces = np.unique(call[is_nccl_kernel], return_counts=True)[1]
    follows = is_nccl_kernel[1:] & ~is_nccl_kernel[:-1] & (call[1:] == call[:-1])
    has_layers = reduces.min() >= FEWEST_CALLS and follows.sum() >= MOST_OF_ALL * is_nccl_kernel.sum()
    return LAYERS if has_layers else NO_LAYERS
