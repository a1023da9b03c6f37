"""Decides what the steps of a task are: of all delimiters, the one that cuts its work into the smallest equal parts.

The operations between two occurrences of a delimiter are a part. A typical part has each name as often as the parts
have it at the median. The similarity of parts is the sum of the operations that they share with the typical part,
divided by the sum of those that either has: by number, or by GPU time, whichever is more, because a printed loss adds
several short operations to a step, and other lengths of sequences change names.

The steps are the longest run of parts that are similar. They are sound if

- their similarity is _LEAST_SIMILAR or more;
- the order of the operations can be foreseen: by chance, long parts are similar without being steps;
- a step has several names, or is a CUDA graph: one kernel alone is no step;
- each step has as many kernels of the optimizer: otherwise it is a micro-batch, or a layer;
- long parts do not come at equal distances, if there is no optimizer: otherwise several parts are a step;
- a step that knows no optimizer has several kernels of attention, or none: one is that of a layer;
- the steps have half of the operations and half of the GPU time; or they are the last work of the task, many, and their
  names come nearly nowhere else: what comes before is start-up.

What other sound steps follow is start-up, too, unless it has an optimizer.

Of the sound candidates, the one with most steps wins. If no optimizer shows that its steps are whole, a candidate with
fewer steps wins whose parts are clearly more similar, and whose names are in all of its parts.

The thresholds are choices that real captures hold (tests/steps/test_repetition.py): in 26 of them the steps are
found without the NVTX ranges that mark them, and in 9 without steps none is found. Too strict a threshold finds no
steps in a program; too loose a one finds parts of steps, or several at once. What delimits them is printed, to show it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.steps.delimiters import Delimiter, list_delimiters, list_similar_words, measure_pauses
from nsys2prv_ng.steps.work import LaunchedWork, PartCounts, count_names, find_largest_sum, foresee

_LEAST_SIMILAR = 0.8
"""Minimum similarity of the parts of steps."""
_LEAST_OF_ONE = 0.65
"""Minimum similarity of a single step at either end of the steps."""
_LEAST_WHOLE = 0.9
"""A part that the capture may have cut is a step if it has this share of the operations of others, or of the least."""
_LONGEST = 1.25
"""A step has at most this many times the operations of others, where its limits are not sure."""
_LEAST_EQUAL_OPTIMIZER = 0.95
"""Minimum similarity of parts in their kernels of the optimizer."""
_IN_NEARLY_ALL = 0.8
"""A name that comes in several parts, but in fewer than this share, is irregular."""
_LEAST_BETTER = 0.05
"""Larger steps are preferred if they are more similar, and have less irregular names, by more than this share."""
_LONG = 3
"""A part is long if it takes this many times the median."""
_LEAST_PHASE = 1.5
"""A part has a phase beside its step if it has at least this many times the operations of others: half of a step."""
_MOST_PHASES = 1 / 3
"""Most phases, as a share of the steps: in `gan` of the test bed, each second step has more work: another network's."""
_LEAST_PART = 0.5
"""Minimum share of operations, and of GPU time, in the steps."""
_MOST_BEFORE = 0.1
"""Maximum share of the operations with names of steps before the steps, if these are few of all operations."""
_FEWEST_AFTER_START_UP = 10
"""Minimum number of steps that are less than half of the work, as after a start-up."""
_MOST_LAYERS = 200
"""A model has fewer layers than this: more parts with attention are steps."""
_LEAST_OUTSIDE = 0.005
"""Minimum share of irregular names among layers if the model around them is a step: it has work outside of layers."""
_LEAST_FORESEEN = 0.7
"""Minimum share of operations that the names of the four operations before them foretell."""
_LEAST_BITS = 12
"""Minimum of operations of repeated steps * log2(number of names): fewer may be equal by chance."""
_LEAST_BITS_OF_SIMILAR = 60
"""Minimum of these bits for steps that are not the same operations in the same order."""
_BITS_OF_FORESEEN = 10_000
"""Above this many bits, predictability suffices; short sequences can be predictable by chance."""
_NEAR = 0.8
"""Delimiters with this share of the most steps are other phases of the same steps."""
_FEWEST_ROUNDS = 5
"""Minimum number of longer periods that are preferred to shorter ones, as the time steps of `heat` in the test bed."""
_MOST_CANDIDATES = 24
"""Maximum number of candidates of a task to compare with those of other tasks: bounds the time, not what is sound."""


class Candidate(NamedTuple):
    """Possible steps of a task: m + 1 limits (first operation of each, and the first one after them).

    - `irregular`: share of the operations whose names come in some steps only; by number or time, whichever is less.
    - `covered`: share of the task's operations in the steps.
    - `place`: where the optimizer's last kernel is in a step: 1 at its end, or without an optimizer.
    - `pause`: median pause (ns) before the steps.
    - `whole`: number of steps without those that are not half as the typical one: these are parts of a step, or have
      others.
    - `is_layer`: whether these are layers of a model rather than steps.
    - `repeats`: how many shorter periods a step contains.
    - `is_phase`: which of them (m) are no steps, but other work between two, as a validation.
    """

    kind: tuple[str, int]
    limits: IntArray
    similarity: float
    irregular: float
    covered: float
    has_optimizer: bool
    place: float
    pause: float
    whole: int
    is_layer: bool
    is_phase: BoolArray
    repeats: int = 1

    @property
    def steps(self) -> int:
        return self.limits.size - 1

    @property
    def rank(self) -> tuple[int, float, float, float]:
        """Order of phases of the same steps, the best is the largest: most steps, which end with the optimizer."""
        return self.whole, round(self.covered + self.similarity, 2), round(self.place, 2), self.pause


def find_candidates(work: LaunchedWork, fewest: int) -> list[Candidate]:
    """Return sound steps of a task, `fewest` or more of them: the best first, then others for ranks that differ."""
    if work.name.size < fewest or foresee(work.name) < _LEAST_FORESEEN:
        return []
    task = _Task(work)
    delimiters, words = list_delimiters(work, fewest)
    found = list(task.find_sound(delimiters, fewest))
    if not found or any(candidate.is_layer and candidate.irregular < _LEAST_OUTSIDE for candidate in found):
        return []
    found = _drop_start_up(found)
    most = _choose_count(found)
    low = int(np.ceil(_NEAR * most))
    found += task.find_sound(list_similar_words(words, work.name.size, max(low, fewest - 1), most + 1), fewest)
    steps = [each for each in _drop_start_up(found) if not each.is_layer and each.whole <= most]
    ranked = sorted(steps, key=lambda each: (*each.rank, each.kind[0], -int(each.limits.sum())), reverse=True)
    ranked = [_join_rounds(candidate, work) for candidate in ranked]
    ranked = [candidate for candidate in ranked if candidate.repeats == ranked[0].repeats]
    distinct = {(candidate.kind, candidate.steps): candidate for candidate in reversed(ranked)}
    return list(distinct.values())[::-1][:_MOST_CANDIDATES]


def _drop_start_up(sound: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that no others follow; training, which optimizers show, is no start-up."""
    last = max(int(candidate.limits[0]) for candidate in sound)
    return [candidate for candidate in sound if candidate.has_optimizer or candidate.limits[-2] >= last]


def _join_rounds(candidate: Candidate, work: LaunchedWork) -> Candidate:
    """Return the rounds of several steps each after which the program copies, if it copies nowhere else.

    A solver copies its field after each time step of several sweeps. Training, which the optimizer shows, and replayed
    graphs copy whenever they log.
    """
    limits = candidate.limits
    if candidate.has_optimizer or work.is_graph[work.name[limits[0] : limits[-1]]].any():
        return candidate
    until = np.append(work.launched[limits[:-1]], np.iinfo(np.int64).max)
    copies = np.diff(np.searchsorted(work.copied, until)) > 0
    last = np.flatnonzero(copies & ~np.append(copies[1:], False))
    if last.size < _FEWEST_ROUNDS:
        return candidate
    repeats = int(np.diff(last)[0])
    if repeats < 2 or np.any(np.diff(last) != repeats):
        return candidate
    first = int(last[0]) + 1 - repeats
    starts = np.append(first, last + 1) if first >= 0 else last + 1
    rounds = starts.size - 1
    is_phase = np.zeros(rounds, np.bool_)
    return candidate._replace(limits=limits[starts], whole=rounds, repeats=repeats, is_phase=is_phase)


def _choose_count(sound: Sequence[Candidate]) -> int:
    """Return the number of steps of the best candidate."""
    least_wrong: dict[int, float] = {}
    for candidate in sound:
        wrong = 0.0 if candidate.has_optimizer else candidate.irregular + 1 - candidate.similarity
        least_wrong[candidate.whole] = min(wrong, least_wrong.get(candidate.whole, wrong))
    counts = sorted(least_wrong, reverse=True)
    for number, count in enumerate(counts):
        if least_wrong[count] <= min(least_wrong[fewer] for fewer in counts[number:]) + _LEAST_BETTER:
            return count
    return counts[-1]


class _Task:
    """The work of a task, prepared for many delimiters."""

    def __init__(self, work: LaunchedWork) -> None:
        self.work = work
        self.pause = measure_pauses(work)
        duration = (work.end - work.begin).astype(np.float64)
        self.until = np.append(0.0, np.cumsum(duration))
        """GPU time before each operation (n + 1), ns."""
        number = np.bincount(work.name)
        self.weights = np.ones(number.size), np.bincount(work.name, duration) / number
        """Weights of the names: one, and the mean duration."""
        is_new = np.diff(work.launched, prepend=work.launched[0] - 1) > 0
        self.launch = np.maximum.accumulate(np.where(is_new, np.arange(work.name.size), 0))
        """First operation that was launched at the same time as each operation (n), as nodes of a graph are."""

    def find_sound(self, delimiters: Iterable[Delimiter], fewest: int) -> Iterable[Candidate]:
        """Yield the sound candidates among delimiters."""
        for kind, first in delimiters:
            starts = np.unique(self.launch[first])
            if starts.size >= fewest - 1 and starts.size > 1:
                candidate = self._examine(kind, starts, fewest)
                if candidate is not None:
                    yield candidate

    def _examine(self, kind: tuple[str, int], starts: IntArray, fewest: int) -> Candidate | None:
        """Return the steps that begin at some operations; None if they are not sound."""
        limits = self._add_ends(starts)
        counts = count_names(self.work.name, len(self.work.texts), limits)
        joined = self._join_fragments(limits, counts)
        if joined.size < limits.size:
            limits, counts = joined, count_names(self.work.name, len(self.work.texts), joined)
        limits, is_phase = self._split_phases(kind, limits)
        if is_phase.any():
            counts = count_names(self.work.name, len(self.work.texts), limits)
        first, last = self._choose_run(limits, counts, is_phase)
        limits, is_phase = limits[first : last + 1], is_phase[first:last]
        if np.count_nonzero(~is_phase) < fewest:
            return None
        counts = counts.choose(first, last).keep(~is_phase)
        typical = counts.find_typical(len(self.work.texts))
        by_number, by_time = (counts.compare(typical, weight) for weight in self.weights)
        shares = [float(shared.sum() / either.sum()) for shared, either in (by_number, by_time) if either.sum()]
        similarity = min(max(shares), 1.0)  # rounding errors
        if similarity < _LEAST_SIMILAR:
            return None
        operations = int(limits[-1] - limits[0])
        number = np.bincount(counts.name, counts.times, len(self.work.texts))
        if not (self._is_step(counts, typical, limits) and self._is_program(limits, typical)):
            return None
        present = np.bincount(counts.name, minlength=len(self.work.texts))
        irregular = (present > 1) & (present < _IN_NEARLY_ALL * counts.parts)
        share = np.minimum(*(number * weight / max(float(number @ weight), 1.0) for weight in self.weights))
        has_optimizer = bool(number[self.work.is_optimizer].any())
        return Candidate(
            kind,
            limits,
            similarity,
            float(share[irregular].sum()),
            operations / self.work.name.size,
            has_optimizer,
            self._find_optimizer(limits) if has_optimizer else 1.0,
            float(np.median(self.pause[limits[1:-1]])),
            int((_mark_similar(*by_number, 0.5) | _mark_similar(*by_time, 0.5)).sum()),
            self._is_layer(counts, typical),
            is_phase,
        )

    def _add_ends(self, starts: IntArray) -> IntArray:
        """Return the limits of parts with the ones before the first start and after the last start.

        These may be more than a step: if much longer than all other parts, they are cut to the median length.
        """
        length = np.diff(starts)
        median, longest, size = int(np.median(length)), _LONGEST * int(length.max()), self.work.name.size
        begin = 0 if starts[0] <= longest else int(self.launch[starts[0] - median])
        end = size
        if size - starts[-1] > longest:
            end = int(starts[-1]) + median
            end += int(np.searchsorted(self.launch[end:], end))
        return np.concatenate([[begin], starts, [end]])

    def _join_fragments(self, limits: IntArray, counts: PartCounts) -> IntArray:
        """Return the limits without those within a step: two parts that are not similar, together as long as others."""
        typical = counts.choose(1, counts.parts - 1).find_typical(len(self.work.texts))
        shared, either = counts.compare(typical, self.weights[0])
        is_odd = ~_mark_similar(shared, either, _LEAST_SIMILAR)
        length = np.diff(limits)
        both = length[1:] + length[:-1] <= _LONGEST * np.median(length)
        return limits[~np.concatenate([[False], is_odd[1:] & is_odd[:-1] & both, [False]])]

    def _split_phases(self, kind: tuple[str, int], limits: IntArray) -> tuple[IntArray, BoolArray]:
        """Return the limits of parts, and which parts are phases between the steps, which the optimizer shows.

        A step that ends or begins with its delimiter has the median length; what a longer part has before it, or after
        it, is a phase if the rest is as similar to other steps as these are.
        """
        length, ends = np.diff(limits), kind[0].startswith("after")
        nothing = limits, np.zeros(length.size, np.bool_)
        usual = int(np.median(length))
        long = np.flatnonzero(length >= _LEAST_PHASE * usual)
        if not 0 < long.size <= _MOST_PHASES * length.size or not self.work.is_optimizer.any():
            return nothing
        middle = self.launch[limits[long + 1] - usual if ends else limits[long] + usual]
        long, middle = long[middle > limits[long]], middle[middle > limits[long]]
        split = np.unique(np.append(limits, middle))
        is_phase = np.isin(split[:-1], limits[long] if ends else middle)
        counts = count_names(self.work.name, len(self.work.texts), split).keep(~is_phase)
        shared, either = counts.compare(counts.find_typical(len(self.work.texts)), self.weights[0])
        return (split, is_phase) if shared.sum() >= _LEAST_SIMILAR * either.sum() else nothing

    def _choose_run(self, limits: IntArray, counts: PartCounts, is_phase: BoolArray) -> tuple[int, int]:
        """Return the first part and the one after the last part of the longest run of similar parts and of phases."""
        typical = counts.choose(1, counts.parts - 1).find_typical(len(self.work.texts))
        length = np.diff(limits)
        least = min(_LEAST_WHOLE * float(np.median(length)), int(length[1:-1].min()))
        runs = []
        for weight in self.weights:
            shared, either = counts.compare(typical, weight)
            value = np.where(is_phase, 0.0, shared - _LEAST_OF_ONE * either)
            for at in (0, -1):  # the capture may have cut them
                if length[at] < least:
                    value[at] = -np.inf
            runs.append(find_largest_sum(value))
        return max(runs, key=lambda run: run[1] - run[0])

    def _is_step(self, counts: PartCounts, typical: IntArray, limits: IntArray) -> bool:
        """Return whether steps are neither smaller nor larger than a step of a program."""
        work = self.work
        names = np.flatnonzero(typical)
        has_graph = bool(work.is_graph[names].any())
        if not has_graph and self._is_chance(limits, typical):
            return False
        of_all = np.bincount(work.name[work.is_optimizer[work.name]], minlength=len(work.texts)).sum()
        shared, either = counts.compare(typical, work.is_optimizer.astype(np.float64))
        if either.sum() and shared.sum() < _LEAST_EQUAL_OPTIMIZER * either.sum():
            return False
        if shared.sum() < _LEAST_PART * of_all:
            return False
        return bool(of_all) or not self._has_long_parts(limits)

    def _is_chance(self, limits: IntArray, typical: IntArray) -> bool:
        """Return whether parts are so few and short that they may be similar by chance, as parts of one name are."""
        length = np.diff(limits)
        is_exact = bool((length == length[0]).all())
        if is_exact:
            steps = self.work.name[limits[0] : limits[-1]].reshape(length.size, -1)
            is_exact = bool((steps == steps[0]).all())
        bits = math.log2(max(int(np.count_nonzero(typical)), 1)) * int(typical.sum()) * (length.size - 1)
        if is_exact or bits > _BITS_OF_FORESEEN:
            return bits < _LEAST_BITS
        # Names may be equally frequent by chance, but not names after names.
        pair, first = encode_rows(
            self.work.name[limits[0] : limits[-1] - 1], self.work.name[limits[0] + 1 : limits[-1]]
        )
        counts = count_names(pair, first.size, np.append(limits[:-1] - limits[0], pair.size))
        shared, either = counts.compare(counts.find_typical(first.size), np.ones(first.size))
        return bits < _LEAST_BITS_OF_SIMILAR or float(shared.sum()) < _LEAST_OF_ONE * float(either.sum())

    def _is_layer(self, counts: PartCounts, typical: IntArray) -> bool:
        """Return whether parts are layers of a transformer: with one or two kernels of attention, and no optimizer."""
        work = self.work
        layers = counts.times[work.is_attention[counts.name]].sum() / counts.parts
        other = work.is_optimizer | (work.is_graph & (typical > 0))
        return bool(0 < layers <= 2 and counts.parts < _MOST_LAYERS and not other.any())

    def _has_long_parts(self, limits: IntArray) -> bool:
        """Return whether every few parts one takes much longer than the others: these are a step together."""
        begin = self.work.begin[limits[:-1]]
        length = np.diff(np.append(begin, self.work.end[limits[-1] - 1])).astype(np.float64)
        long = np.flatnonzero(length > _LONG * np.median(length))
        if long.size < 2:
            return False
        distance = np.diff(long)
        middle = float(np.median(distance))
        is_even = float((np.abs(distance - middle) <= 0.1 * middle).mean()) >= _IN_NEARLY_ALL
        return middle >= 2 and is_even and (long.size + 1) * middle >= _IN_NEARLY_ALL * length.size

    def _is_program(self, limits: IntArray, typical: IntArray) -> bool:
        """Return whether steps are the main work of the task, or its last work after a start-up."""
        size, first, last = self.work.name.size, int(limits[0]), int(limits[-1])
        time = self.until[last] - self.until[first]
        if last - first >= _LEAST_PART * size and time >= _LEAST_PART * self.until[-1]:
            return True
        before = np.count_nonzero(typical[self.work.name[:first]])
        after = self.work.name[last:]
        return bool(
            limits.size > _FEWEST_AFTER_START_UP
            and before <= _MOST_BEFORE * (last - first)
            and after.size < typical.sum()
            and typical[after].all()
        )

    def _find_optimizer(self, limits: IntArray) -> float:
        """Return where in a step of median length the last kernel of the optimizer is: 1 at its end."""
        middle = int(np.argsort(np.diff(limits), kind="stable")[(limits.size - 1) // 2])
        step = self.work.is_optimizer[self.work.name[limits[middle] : limits[middle + 1]]]
        return float((np.flatnonzero(step)[-1] + 1) / step.size) if step.any() else 0.0


def _mark_similar(shared: FloatArray, either: FloatArray, least: float) -> BoolArray:
    """Mark the parts (m) that have at least this similarity to the typical part."""
    return shared >= least * either


def name_delimiter(work: LaunchedWork, limits: IntArray) -> str:
    """Return a short name of what delimits steps: a CUDA graph, the optimizer's kernel that ends them, or their first.

    `limits` (m + 1): first operation of each step, and the first one after them.
    """
    last = work.name[limits[1:] - 1]
    ends = np.bincount(last, minlength=len(work.texts)).argmax()
    starts = np.bincount(work.name[limits[:-1]], minlength=len(work.texts)).argmax()
    number = int(ends if work.is_optimizer[ends] else starts)
    return "CUDA graph" if work.is_graph[number] else work.texts[number]
