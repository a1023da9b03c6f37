"""Finds what a program launches again and again: sequences that a step repeats, and forward passes that run twice.

Kernels are compared by name and class, in the order in which a thread launches them within a step. Copies count only
where many from the host follow each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows, find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray, IntTable
from nsys2prv_ng.replay.graph import NONE
from nsys2prv_ng.replay.numbers import Repeated
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.steps.steps import Steps

KINDS = ("optimizer", "embedding", "recurrent", "others", "copies", "one-hot")
OPTIMIZER, EMBEDDING, RECURRENT, OTHERS, COPIES, ONE_HOT = KINDS
"""Kinds of sequences: an optimizer's for each parameter, lookups for each table, cells for each time step, others;
copies from the host, and what makes one-hot vectors and multiplies a table by them (once is too often)."""
_PATTERNS = {
    OPTIMIZER: re.compile(r"^Optimizer$"),
    EMBEDDING: re.compile(r"(?i)embedding(?!.*index$)|compute_grad_weight|sum_and_scatter"),
    RECURRENT: re.compile(r"(?:lstm|gru)_cell_(?:forward|backward)"),
}
"""What a kernel of each kind of sequence is called, or its class."""
_OF_PASSES = re.compile(r"^(?:Convolution|Attention|Softmax or loss|Normalisation)")
_PRODUCTS = re.compile(r"^GEMM")
"""Classes of kernels that only a whole pass of a model has; and products, which cells have, too.

An update on a mini-batch, with its optimizer, repeats eight times in a step of the capture ppo-fast."""
_AT_ONCE = re.compile(r"RNNcell|_elementWise_[bf]p")
"""Kernels of cuDNN's recurrent layers, which one call launches for a whole sequence."""
_FOR_ALL = "multi_tensor_apply"
"""Kernels that treat many parameters at once: a large model needs several of them in a row."""
_OVER_RANKS = "NCCL"
"""The class of kernels that ranks enter together: what repeats with them are the layers of a model."""
_LEAST_TIMES, _LEAST_KNOWN = 16, 8
"""Least number of repetitions in a row, and of those of a known kind.

A choice: the fewest that a cure of the test bed removed (sweep), and half the parameters of a small network (gan)."""
MERGED = {OPTIMIZER: 0.3, EMBEDDING: 0.3, COPIES: 0.3, ONE_HOT: 0.01}
"""Kinds of which one launch does the work of all repetitions: time of what later ones launched, as a part of it.

Measured on what a cure replaced: 0.29 in gan (fused Adam), 0.32 in recsys (one table) and in sensors (one copy), 0.01
in tagger (a lookup). Cells depend on each other, and others may."""
_FROM_HOST, _SHORT_NS = "Memcpy host to device", 10_000
"""The name of copies that may be one, and their most time (ns): what the call takes. In sensors, 8 kB take 1.2 us."""
_FILLS, _SCATTERS = "Copy, cast or fill", "_scatter_gather_elementwise_kernel"
"""The class of fills and casts, and what PyTorch scatters with."""
_FILL, _SCATTER, _PRODUCT = b"fsp"
_ONE_HOT = re.compile(rb"(?<!s)(s+)(f+)p")
"""One-hot vectors, from their launches: after a fill, ones scattered into it, a cast, and the product. Large tensors
are treated in parts, as many of each."""
_MOST_KERNELS = 128
"""Most kernels of a repetition. A choice between time and longer ones: those of the test bed have 60 at most."""
_MOST_LISTED = 3
"""Most sequences that are listed."""
_BACKWARD = re.compile(r"(?i)backward|bwd|bprop|dgrad|wgrad|(?-i:Grad)")
_SAME = 8 + 4
"""Kernels in a row that a forward and a backward pass must share for these to be launched twice.

A choice: a block of a transformer has 12 or more; fewer may be one and the same chain of elementwise kernels."""


class Launched(NamedTuple):
    """The n kernels that threads launch, by thread and in the order of their launches.

    `length`: of the kernel (ns); `group`: a number of the thread and step of each; NONE outside of steps. `kind`: index
    of `names`, which has the names and classes of kernels.
    """

    operation: IntArray
    length: IntArray
    call: IntArray
    thread: IntArray
    task: IntArray
    group: IntArray
    kind: IntArray
    names: list[tuple[str, str]]


class Repeats(NamedTuple):
    """n sequences that are repeated in a row.

    `kind`: index of KINDS; `kernels`: of one repetition; `times`: repetitions. `low`, `high`: the first and the last
    call that launches later ones.
    """

    kind: IntArray
    kernels: IntArray
    times: IntArray
    low: IntArray
    high: IntArray


class Recomputed(NamedTuple):
    """The operations that a backward pass launches as a forward pass did, and the calls that do so, as indices."""

    operation: IntArray
    low: IntArray
    high: IntArray


def number_steps(steps: Steps | None, task: IntArray, time: IntArray) -> IntArray:
    """Return the index of the step that hosts of a task are in at each time (ns); NONE before the first one."""
    found = np.full(time.size, NONE)
    if steps is None:
        return found
    for each in np.unique(steps.task).tolist():
        own = np.flatnonzero(steps.task == each)
        own = own[np.argsort(steps.host_begin[own], kind="stable")]
        at = np.searchsorted(steps.host_begin[own], time, "right") - 1
        found = np.where((task == each) & (at >= 0), steps.step[own][np.maximum(at, 0)], found)
    return found


# ---- sequences -------------------------------------------------------------------------------------------------------


def find_repeats(launched: Launched) -> Repeats:
    """Return the sequences that threads launch in a row within a step; none without steps.

    Where several overlap, the one that covers most kernels counts, then the one with the shortest repetition. What is
    repeated as often as a sequence of the optimizer in the same step is work for each parameter, too.
    """
    found = np.zeros((3, launched.kind.size), np.int64)  # enough: those of one length hardly overlap
    runs = found[:, : _find_runs(launched.kind, launched.group, found)].T.copy()
    runs = runs[~_mark_runs(launched, runs[:, 0], runs[:, 1], lambda _, kernel_class: kernel_class == _OVER_RANKS)]
    order = np.lexsort((runs[:, 1], -(runs[:, 1] * runs[:, 2])))
    kept = np.zeros(order.size, np.bool_)
    _choose(runs, order, np.zeros(launched.kind.size, np.bool_), kept)
    at, kernels, times = runs[kept].T
    kind = _find_kinds(launched, at, kernels)
    of_parameters = kind == KINDS.index(OPTIMIZER)
    keys, _ = encode_rows(launched.group[at], times)
    kind = np.where(np.isin(keys, keys[of_parameters]) & (kind >= 0), KINDS.index(OPTIMIZER), kind)
    low, high = launched.call[at + kernels], launched.call[at + kernels * times - 1]
    shown = (kind >= 0) & (times >= np.where(kind == KINDS.index(OTHERS), _LEAST_TIMES, _LEAST_KNOWN))
    return Repeats(*(column[shown].astype(np.int64) for column in (kind, kernels, times, low, high)))


def _find_kinds(launched: Launched, at: IntArray, kernels: IntArray) -> IntArray:
    """Return the kind of each sequence, of so many kernels from one on, as an index of KINDS; NONE: no repetition."""

    mark = partial(_mark_runs, launched, at, kernels)
    known = [mark(lambda *words, pattern=each: any(map(pattern.search, words))) for each in _PATTERNS.values()]
    found = np.select(known, [KINDS.index(kind) for kind in _PATTERNS], KINDS.index(OTHERS))
    is_pass = mark(lambda _, kernel_class: _OF_PASSES.search(kernel_class))
    merges = np.isin(found, [KINDS.index(kind) for kind in (OPTIMIZER, EMBEDDING)])
    is_pass |= merges & mark(lambda _, kernel_class: _PRODUCTS.search(kernel_class))
    found = np.where(is_pass, KINDS.index(OTHERS), found)
    at_once = mark(lambda name, _: _AT_ONCE.search(name)) | ~mark(lambda name, _: _FOR_ALL not in name)
    return np.where(at_once, NONE, found)


def _mark_runs(launched: Launched, at: IntArray, kernels: IntArray, has: Callable[[str, str], object]) -> BoolArray:
    """Mark the sequences with a kernel of such a name and class."""
    own = np.array([bool(has(*names)) for names in launched.names], np.int64)[launched.kind]
    sums = np.append(0, np.cumsum(own))
    return np.asarray(sums[at + kernels] > sums[at], np.bool_)


def find_copies(launched: Launched) -> Repeats:
    """Return where threads launch short copies from the host often in a row, in a step. `launched`: with copies."""
    copies = np.array([name == _FROM_HOST for name, _ in launched.names], np.bool_)[launched.kind]
    copies &= (launched.group >= 0) & (launched.length <= _SHORT_NS)
    joined = np.zeros(copies.size + 1, np.bool_)  # each to the one before it
    joined[1:-1] = copies[:-1] & copies[1:] & (launched.group[:-1] == launched.group[1:])
    low, high = np.flatnonzero(copies & ~joined[:-1]), np.flatnonzero(copies & ~joined[1:])
    low, high = low[high - low + 1 >= _LEAST_TIMES], high[high - low + 1 >= _LEAST_TIMES]
    kind, one = np.full(low.size, KINDS.index(COPIES)), np.ones_like(low)
    return Repeats(kind, one, high - low + 1, launched.call[low + 1], launched.call[high])


def find_one_hot(launched: Launched) -> Repeats:
    """Return where threads make one-hot vectors, and multiply a table by them, in a step.

    To make them takes at least as long as the product: what is as small as its result, such as the gradient of a
    gather, is none.
    """
    letters = np.full(len(launched.names), ord("o"), np.uint8)
    for n, (name, kernel_class) in enumerate(launched.names):
        if kernel_class == _FILLS:
            letters[n] = _FILL
        elif name == _SCATTERS:
            letters[n] = _SCATTER
        elif _PRODUCTS.search(kernel_class):
            letters[n] = _PRODUCT
    word = letters[launched.kind].tobytes()
    found = [
        (each.start() - len(each[1]), each.end())
        for each in _ONE_HOT.finditer(word)
        if len(each[1]) == len(each[2]) and word.endswith(bytes([_FILL]) * len(each[1]), 0, each.start())
    ]
    low, after = np.array(found, np.int64).reshape(-1, 2).T
    times = np.append(0, np.cumsum(launched.length))
    inside = (launched.group[low] >= 0) & (launched.group[low] == launched.group[after - 1])
    inside &= times[after - 1] - times[low] >= launched.length[after - 1]
    low, after = low[inside], after[inside]
    kind, one = np.full(low.size, KINDS.index(ONE_HOT)), np.ones_like(low)
    return Repeats(kind, after - low, one, launched.call[low], launched.call[after - 1])


def join_repeats(*parts: Repeats) -> Repeats:
    """Return the sequences of all parts."""
    return Repeats(*map(np.concatenate, zip(*parts, strict=True)))


def list_repeated(repeats: Repeats) -> list[Repeated]:
    """Return the different sequences of kernels that are repeated, that with most launches in all first."""
    repeats = match_kinds(repeats, [KINDS.index(kind) for kind in (OPTIMIZER, EMBEDDING, RECURRENT, OTHERS)])
    code, distinct = find_distinct_rows(repeats.kind, repeats.kernels, repeats.times)
    launches = np.bincount(code, repeats.kernels * repeats.times, len(distinct))
    rows = (distinct[n] for n in np.argsort(-launches, kind="stable")[:_MOST_LISTED].tolist())
    return [Repeated(kind=KINDS[kind], kernels=kernels, times=times) for kind, kernels, times in rows]


@compiled
def _find_runs(kind: IntArray, group: IntArray, found: IntTable) -> int:
    """Set the first kernel, the kernels and the number of repetitions (3 x n) of all runs; return how many."""
    count = 0
    for period in range(1, min(_MOST_KERNELS, kind.size // _LEAST_KNOWN) + 1):
        same = 0
        for i in range(kind.size - period + 1):
            j = i + period
            if j < kind.size and group[i] >= 0 and group[i] == group[j] and kind[i] == kind[j]:
                same += 1
                continue
            times = same // period + 1
            if times >= _LEAST_KNOWN and count < found.shape[1]:
                found[0, count], found[1, count], found[2, count] = i - same, period, times
                count += 1
            same = 0
    return count


@compiled
def _choose(runs: IntTable, order: IntArray, taken: BoolArray, kept: BoolArray) -> None:
    """Mark in `kept` the runs that share no kernel with one before them in `order`, and all kernels of these."""
    for n in order:
        first, after = runs[n, 0], runs[n, 0] + runs[n, 1] * runs[n, 2]
        if not taken[first:after].any():
            taken[first:after] = True
            kept[n] = True


# ---- forward passes --------------------------------------------------------------------------------------------------


def find_recomputed(launched: Launched) -> Recomputed:
    """Return what threads of backward passes launch as threads without one do: gradient checkpointing runs it twice.

    Such threads launch _SAME kernels in a row that a forward pass has in that order, too.
    """
    is_backward = np.array([_BACKWARD.search(name) is not None for name, _ in launched.names], np.bool_)[launched.kind]
    backward = np.isin(launched.thread, np.unique(launched.thread[is_backward]))
    marked = np.zeros(launched.kind.size, np.bool_)
    size = launched.kind.size - _SAME + 1
    if size > 0 and backward.any() and not backward.all():
        code, _ = encode_rows(launched.task, launched.kind)
        for length in (1, 2):  # of each 2 and 4 in a row, then of 8, and of 8 and the 4 after them
            code, _ = encode_rows(code[:-length], code[length:])
        longer, _ = encode_rows(code[:-4], code[4:])
        code, _ = encode_rows(longer[:size], code[8:])
        whole = (launched.group[:size] >= 0) & (launched.group[:size] == launched.group[_SAME - 1 :])
        same = whole & backward[:size] & np.isin(code, code[whole & ~backward[:size]])
        for k in range(_SAME):
            marked[np.flatnonzero(same) + k] = True
    joined = np.zeros(marked.size + 1, np.bool_)  # each to the one before it
    joined[1:-1] = marked[:-1] & marked[1:] & (launched.thread[1:] == launched.thread[:-1])
    low, high = np.flatnonzero(marked & ~joined[:-1]), np.flatnonzero(marked & ~joined[1:])
    return Recomputed(launched.operation[marked], launched.call[low], launched.call[high])


def mark_calls(calls: int, low: IntArray, high: IntArray) -> BoolArray:
    """Mark those of all calls that lie between some pairs of calls of one thread, both included."""
    change = np.zeros(calls + 1, np.int64)
    np.add.at(change, low, 1)
    np.add.at(change, high + 1, -1)
    return np.asarray(np.cumsum(change)[:-1] > 0, np.bool_)


def match_kinds(repeats: Repeats, kinds: Sequence[int]) -> Repeats:
    """Return the sequences of some kinds."""
    chosen = np.isin(repeats.kind, kinds)
    return Repeats(*(column[chosen] for column in repeats))
