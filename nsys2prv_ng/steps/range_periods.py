"""Finds steps that NVTX ranges show by their order: `cycle` again and again; or `forward`, `backward`, `optimizer`.

The outermost ranges of a thread are a sequence of names, in which numbers do not count. A *part* begins before, or ends
after, each occurrence of one of these names. A typical part has each name as often as the parts have it at the median.

- What follows (or precedes) the typical ranges of a part, and takes half as long as a typical part or longer, is a part
  of its own: a validation after every fourth step. So is GPU work that the program counts: `eval 3`. Anything else
  belongs to the part: a checkpoint, a printed loss.
- Parts are sound if they are similar (as in steps/repeated_steps.py, by number or by time), if each launches as many
  kernels of the optimizer, and if they launch most of the GPU work.
- Of the sound ones at the same depth, those with the optimizer win, else the most similar; of these, those that
  end with the optimizer, then those with most parts, then those that begin before a name, then the earliest.
- Parts of the same names on several threads are work beside each other, and no steps.
- Ranges that a thread opens once or twice are no part of a sequence: those within them count instead. So do those
  within ranges that are called epochs, and where the outermost ranges show no steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.groups import find_medians
from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick
from nsys2prv_ng.intervals.nesting import measure_depths
from nsys2prv_ng.steps.kinds import read_batch
from nsys2prv_ng.steps.work import LaunchedWork, PartCounts, count_names

_LEAST_SIMILAR = 0.8
"""Minimum similarity of the parts of steps, as of repeated kernels (steps/repeated_steps.py)."""
_LEAST_OF_ONE = 0.65
"""Minimum similarity of the first and the last part, which the capture may have cut."""
_LEAST_EQUAL_OPTIMIZER = 0.95
"""Minimum similarity of parts in their number of the optimizer's kernels."""
_LEAST_BETTER = 0.05
"""Fewer parts are preferred if they are more similar by more than this."""
_LEAST_WORK = 0.5
"""Minimum share of the GPU work that parts launch: most of it."""
_FEWEST_AFTER_START_UP, _LEAST_AFTER_START_UP = 10, 0.9
"""After a start-up, more than this many parts launch this share of the GPU work: ten `phase` of single-node do not."""
_LEAST_EXTRA = 0.5
"""Minimum length of ranges between typical ones that are a part of their own, as a share of a typical part."""
_DEEPEST = 4
"""Levels of ranges in which steps are looked for: a run, an epoch, a phase, and the steps within it."""
_MOST_NAMES = 64
"""Maximum number of names at one level: more are operations of a framework rather than phases of a program."""
_NEVER = np.iinfo(np.int64).max
_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)*")
_OPERATOR = re.compile(r"::|Backward[0-9]*$")
"""Operators are no phases: in mfu_2gpu_before, those of layers repeat within a part of a step."""
_EPOCH = re.compile(r"epoch", re.IGNORECASE)
_MODE = re.compile(r"^step\[.*")
_OPTIMIZER = re.compile(r"optim", re.IGNORECASE)


class RangeSequence(NamedTuple):
    """n ranges of a thread in order of their starts: index of each family (names without numbers), begin, end (ns).

    `is_counted`: whether the name of each ends with a number.
    """

    family: IntArray
    begin: IntArray
    end: IntArray
    is_counted: BoolArray
    families: Sequence[str]

    def take(self, which: IntArray | BoolArray) -> RangeSequence:
        """Return some of the ranges."""
        columns = {name: getattr(self, name)[which] for name in ("family", "begin", "end", "is_counted")}
        return self._replace(**columns)


class RangeParts(NamedTuple):
    """m parts of a sequence, in columns: first range, the one after the last (indices), and whether it is an extra.

    `names`: the families of a typical part, in their order. `has_optimizer`: whether parts launch it. `rank`: the
    better, the larger.
    """

    first: IntArray
    after: IntArray
    is_extra: BoolArray
    names: tuple[int, ...]
    similarity: float
    has_optimizer: bool
    rank: tuple[bool, int, bool, int]


def is_operator(name: str) -> bool:
    """Return whether a range is an operator of a framework, as PyTorch marks each, rather than a phase of a program."""
    return _OPERATOR.search(name) is not None


def name_family(name: str) -> str:
    """Return the name of a range with `*` for each number, as a template has it, and for the mode of SGLang's batches.

    The batches of a server come in any order: decode after prefill is another step, no second half of one.
    """
    return _NUMBERS.sub("*", name if read_batch(name) is None else _MODE.sub("step[*]", name))


def find_parts(
    ranges: RangeSequence, work: LaunchedWork, fewest: int, *, nests: bool
) -> tuple[IntArray, RangeParts] | None:
    """Return which ranges of a thread form the sequence (indices), and its best parts; None if none are steps.

    `work`: what the process of the thread launched. `nests`: whether the ranges nest, as push/pop ranges do.
    """
    left = np.arange(ranges.family.size)
    found = None
    for _ in range(_DEEPEST):
        outer, left = _choose_outermost(ranges, left, fewest, nests=nests)
        if not outer.size:
            break
        parts = _choose_parts(_Sequence(ranges.take(outer), work), fewest)
        if parts is not None:
            found = found or (outer, parts)
            if not any(_EPOCH.search(ranges.families[name]) for name in parts.names):
                return outer, parts
    return found


def _choose_outermost(ranges: RangeSequence, left: IntArray, fewest: int, *, nests: bool) -> tuple[IntArray, IntArray]:
    """Return the outermost ranges of families with `fewest` ranges there or more, and those within them."""
    while left.size:
        inner = ranges.take(left)
        depth = np.ones(left.size, np.int64)
        if nests:
            depth = measure_depths(np.zeros(left.size, np.int64), inner.begin, inner.end)
        count = np.bincount(inner.family[depth == 1], minlength=len(ranges.families))
        is_rare = (depth == 1) & (count[inner.family] < fewest)
        if not is_rare.any():
            return left[depth == 1], left[depth > 1]
        left = left[~is_rare]
    return left, left


class _Sequence:
    """A sequence of ranges that do not overlap, prepared for many ways to cut it into parts."""

    def __init__(self, ranges: RangeSequence, work: LaunchedWork) -> None:
        self.used, self.name = np.unique(ranges.family, return_inverse=True)
        self.families = [ranges.families[number] for number in self.used.tolist()]
        self.begin, self.end, self.is_counted = ranges.begin, ranges.end, ranges.is_counted
        self.launched = work.launched
        self.until = np.append(0, np.cumsum(work.end - work.begin))
        """GPU time (ns) of the operations launched before each operation."""
        low, high = (np.searchsorted(work.launched, time) for time in (ranges.begin, ranges.end))
        self.work = np.append(0, np.cumsum(self.until[high] - self.until[low]))
        """GPU time (ns) that was launched within the ranges before each range."""
        self.optimizers = np.append(0, np.cumsum(work.is_optimizer[work.name]))
        length = (ranges.end - ranges.begin).astype(np.float64)
        number = np.bincount(self.name)
        self.weights = np.ones(number.size), np.bincount(self.name, length) / number
        """Weights of the names: one, and the mean length."""

    def choose_names(self) -> list[tuple[int, bool]]:
        """Return the names to cut at, and whether after them: those with the optimizer, and the first and the last of
        equally frequent names. Others cut the same parts elsewhere."""
        count = np.bincount(self.name)
        reverse = np.unique(self.name[::-1], return_index=True)[1]
        first = np.unique(self.name, return_index=True)[1]
        chosen = [(int(name), False) for name in _choose_least(count, first)]
        chosen += [(int(name), True) for name in _choose_least(count, reverse)]
        low, high = np.searchsorted(self.launched, [self.begin, self.end + 1])
        optimizing = np.unique(self.name[self.optimizers[high] > self.optimizers[low]]).tolist()
        named = [n for n, text in enumerate(self.families) if _OPTIMIZER.search(text)]
        return list(dict.fromkeys([*chosen, *((n, after) for n in [*optimizing, *named] for after in (False, True))]))

    def cut(self, name: int, *, after: bool) -> tuple[IntArray, IntArray]:
        """Return the first range of each part that begins before, or ends after, a name, and the one after its last."""
        places = np.flatnonzero(self.name == name) + after
        limits = np.append(0, places) if after else np.append(places, self.name.size)
        return limits[:-1], limits[1:]

    def count(self, first: IntArray, after: IntArray) -> PartCounts:
        """Return the counts of names in parts, each of which ends where the next one begins."""
        return count_names(self.name, self.used.size, np.append(first, after[-1:]))

    def measure(self, first: IntArray, after: IntArray) -> IntArray:
        """Return the time on the host from the begin to the end of parts, and the GPU time that was launched within
        their ranges (2, parts; ns)."""
        return np.array([self.end[after - 1] - self.begin[first], self.work[after] - self.work[first]])

    def covers_work(self, first: IntArray, after: IntArray) -> bool:
        """Return whether parts, most of which launch work, launch most of it; or, if they are many, nearly all after a
        start-up."""
        of_part = self.measure(first, after)[1]
        work = int(of_part.sum())
        rest = self.until[-1] - self.until[np.searchsorted(self.launched, self.begin[first[0]])]
        is_last = first.size > _FEWEST_AFTER_START_UP and work >= _LEAST_AFTER_START_UP * rest
        is_most = is_last or work >= _LEAST_WORK * self.until[-1]
        return bool(is_most and 2 * np.count_nonzero(of_part) > first.size)

    def count_optimizers(self, first: IntArray, after: IntArray, *, ends: bool) -> tuple[IntArray, IntArray]:
        """Return the number of the optimizer's kernels that were launched in each part, and in its last range.

        What is launched between two parts belongs to the earlier one, or if parts are cut after a name (`ends`), to the
        later one. Without such kernels, the ranges that are called so count.
        """
        if not self.optimizers[-1]:
            is_named = np.array([bool(_OPTIMIZER.search(text)) for text in self.families])[self.name]
            return np.add.reduceat(is_named[: after[-1]].astype(np.int64), first), is_named[after - 1].astype(np.int64)
        limits = pick(self.end, np.append(first[:1], after) - 1, -_NEVER) + 1 if ends else self.begin[first]
        if not ends:
            limits = np.append(limits, pick(self.begin, np.where(after < self.name.size, after, -1)[-1:], _NEVER))
        last = np.searchsorted(self.launched, [self.begin[after - 1], self.end[after - 1] + 1])
        whole = self.optimizers[np.searchsorted(self.launched, limits)]
        return np.diff(whole), self.optimizers[last[1]] - self.optimizers[last[0]]


def _choose_least(count: IntArray, place: IntArray) -> IntArray:
    """Return of the names (k) with each count the one with the least place."""
    order = np.lexsort((place, count))
    return order[find_starts(count[order])]


def _choose_parts(sequence: _Sequence, fewest: int) -> RangeParts | None:
    """Return the best parts of a sequence; None if none are sound."""
    if sequence.used.size > _MOST_NAMES or np.any(sequence.begin[1:] < sequence.end[:-1]):
        return None
    sound = list(_list_parts(sequence, fewest))
    # The optimizer shows that steps are whole; without it, similarity does.
    best = max((parts.similarity for parts in sound if not parts.has_optimizer), default=0.0)
    good = (parts for parts in sound if parts.has_optimizer or parts.similarity >= best - _LEAST_BETTER)
    return max(good, key=lambda parts: parts.rank, default=None)


def _list_parts(sequence: _Sequence, fewest: int) -> Iterator[RangeParts]:
    """Yield the sound parts, before and after names."""
    for name, is_after in sequence.choose_names():
        first, after = sequence.cut(name, after=is_after)
        if first.size >= fewest:
            parts = _examine(sequence, first, after, fewest, ends=is_after)
            if parts is not None:
                yield parts


def _examine(sequence: _Sequence, first: IntArray, after: IntArray, fewest: int, *, ends: bool) -> RangeParts | None:
    """Return parts without those that are cut, and with extras apart; None if they are not sound.

    `ends`: whether parts are cut after a name.
    """
    typical = sequence.count(first, after).find_typical(sequence.used.size)
    first, after, is_extra = _split_extras(sequence, first, after, typical, ends=ends)
    counts = sequence.count(first, after)
    compared = [counts.compare(typical, weight) for weight in sequence.weights]
    is_cut = ~is_extra & np.all([shared < _LEAST_OF_ONE * either for shared, either in compared], axis=0)
    low, high = (1 if is_cut[:1].any() else 0), first.size - (1 if is_cut[-1:].any() else 0)
    first, after, is_extra = first[low:high], after[low:high], is_extra[low:high]
    core = np.flatnonzero(~is_extra)
    if core.size < fewest:
        return None
    optimizers, last = sequence.count_optimizers(first, after, ends=ends)
    middle = int(np.median(optimizers[core]))
    equal = np.minimum(optimizers[core], middle).sum()
    if equal < _LEAST_EQUAL_OPTIMIZER * max(np.maximum(optimizers[core], middle).sum(), optimizers.sum()):
        return None
    if not sequence.covers_work(first, after):
        return None
    counts = sequence.count(first, after)
    shares = []
    for weight in sequence.weights:
        shared, either = counts.compare(typical, weight)
        shares.append(float(shared[core].sum() / max(float(either[core].sum()), 1.0)))
    if max(shares) < _LEAST_SIMILAR:
        return None
    in_order = sequence.name[first[core[0]] : after[core[0]]]
    names = [int(sequence.used[name]) for name in dict.fromkeys(in_order.tolist()) if typical[name]]
    ends_with_optimizer = 2 * np.count_nonzero(last[core]) > core.size
    rank = ends_with_optimizer, core.size, not ends, -int(first[0])
    return RangeParts(first, after, is_extra, tuple(names), max(shares), bool(middle), rank)


def _split_extras(
    sequence: _Sequence, first: IntArray, after: IntArray, typical: IntArray, *, ends: bool
) -> tuple[IntArray, IntArray, BoolArray]:
    """Return the parts, with the ranges before them (`ends`) or after them that are long as parts of their own."""
    is_core = typical[sequence.name] > 0
    place = np.arange(sequence.name.size)
    if ends:
        following = np.minimum.accumulate(np.where(is_core, place, place.size)[::-1])[::-1]
        middle = np.minimum(following[first], after)
        core, extra = (middle, after), (first, middle)
    else:
        middle = np.maximum.accumulate(np.where(is_core, place, -1))[after - 1] + 1
        core, extra = (first, middle), (middle, after)
    has_extra = np.flatnonzero((extra[0] < extra[1]) & (core[0] < core[1]))
    if not has_extra.size:
        return first, after, np.zeros(first.size, np.bool_)
    usual = np.median(sequence.measure(*core), axis=1, keepdims=True)
    length = sequence.measure(extra[0][has_extra], extra[1][has_extra])
    # What begins with one name is a part each time, or never: one slow output among others is none.
    share = (1_000 * length / np.maximum(usual, 1)).max(axis=0).astype(np.int64)
    head = extra[0][has_extra]
    names, medians = find_medians(sequence.name[head], share)
    is_long = medians[np.searchsorted(names, sequence.name[head])] >= 1_000 * _LEAST_EXTRA
    split = has_extra[is_long | (sequence.is_counted[head] & (length[1] > 0))]
    limits = np.unique(np.concatenate([first, after, middle[split]]))
    is_extra = np.isin(limits[:-1], extra[0][split])
    return limits[:-1], limits[1:], is_extra
