"""Lists what may delimit the steps of a task: operations that occur once a step, as far as their places show.

There are three kinds of delimiters:

- A word: 1, 2, 4 to 64 names that follow each other. Short words survive insertions, long words are needed where every
  name occurs several times in a step. Each begins a step, or ends one.
- A burst: occurrences of one name that are closer to each other than to the next burst, as of an optimizer's kernels.
  Each burst begins a step, or ends one.
- A pause, in which the GPUs of the task are idle for longer than elsewhere.

Words and bursts whose places are uneven are no delimiters: the median distance must nearly be the mean distance.

Checksums of names only tell whether names are equal, also on other ranks. No order depends on them: other names for the
same kernels give the same steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import FloatArray, IntArray
from nsys2prv_ng.steps.work import LaunchedWork
from nsys2prv_ng.value_class import ValueClass

_LONGEST_WORD = 64
"""Longest word (names): a longer one would help only if all shorter ones came several times in each step."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Odd, with random bits: products with it differ in all bits, modulo 2**64."""
_LEAST_EVEN = 0.6
"""Minimum of median distance / mean distance of a delimiter's occurrences."""
_CLASS = 1.1
"""Words whose numbers of occurrences differ by less than this factor are a class: few of them are tried."""
_MOST_CLASSES, _MOST_IN_CLASS = 24, 2
"""Maximum number of classes to try, and of words of each order in a class: they bound the time of the search."""
_MOST_SIMILAR = 6
"""Maximum number of words, of each order, to try for other phases of steps."""
_MOST_BURSTS = 24
"""Maximum number of bursts to try: bounds the time of the search."""
_LEAST_JUMP = 2.0
"""Bursts are at least this many times farther from each other than occurrences within them."""
_LEAST_PAUSE = 1_000
"""Shorter pauses (ns) do not differ from each other."""
_LEAST_PAUSE_JUMP, _MOST_PAUSES = 1.5, 6
"""Pauses before steps are at least this many times longer than others; maximum number of such limits to try."""


class Delimiter(NamedTuple):
    """A possible delimiter: its kind, equal on all ranks, and the first operation (indices, ascending) of each step."""

    kind: tuple[str, int]
    first: IntArray


class Words(ValueClass):
    """m words that occur several times: of each, its columns of (m,); and the places of all, one after the other.

    - `width`: number of names in the word.
    - `times`: number of occurrences.
    - `first`: place of the first occurrence.
    - `span`: operations from the first to the last occurrence.
    - `even`: median distance / mean distance.
    - `pause`: mean of the logarithms of the pauses (ns) before the occurrences: one long pause counts little.
    - `start`: index of the word's first place in `places`.
    """

    checksum: IntArray
    width: IntArray
    times: IntArray
    first: IntArray
    span: IntArray
    even: FloatArray
    pause: FloatArray
    start: IntArray
    places: IntArray

    def delimit(self, word: int, after: bool, size: int) -> Delimiter:
        """Return the delimiter before or after the occurrences of a word among `size` operations."""
        places = self.places[self.start[word] : self.start[word] + self.times[word]]
        first = places + self.width[word] if after else places
        return Delimiter(("after word" if after else "word", int(self.checksum[word])), first[first < size])

    def rank(self, which: IntArray) -> list[tuple[bool, IntArray]]:
        """Return three orders of some words, whether to cut after them, and their indices.

        First come the most frequent words, of these the one nearest to the begin of the task; or those whose ends are
        nearest to its end, because what comes before steps may repeat, too; or those after the longest pauses. Of words
        at the same place, shorter ones come first.
        """
        width, count, first = self.width[which], self.times[which], self.first[which]
        end = first + self.span[which] + width
        return [
            (False, which[np.lexsort((width, first, -count))]),
            (True, which[np.lexsort((width, -count, -end))]),
            (False, which[np.lexsort((width, first, -self.pause[which]))]),
        ]


def measure_pauses(work: LaunchedWork) -> IntArray:
    """Return the time (n, ns) before each operation in which no operation that was launched before it ran."""
    busy_until = np.maximum.accumulate(work.end)
    return np.maximum(work.begin - np.concatenate([work.begin[:1], busy_until[:-1]]), 0)


def list_delimiters(work: LaunchedWork, fewest: int) -> tuple[list[Delimiter], Words]:
    """Return the delimiters to try first, and all even words with `fewest` occurrences or more."""
    pause = measure_pauses(work)
    words = find_words(work.checksum[work.name], pause, fewest)
    chosen = [words.delimit(word, after, work.name.size) for word, after in _choose_words(words)]
    return [*chosen, *_list_bursts(work, fewest), *_list_pauses(pause, fewest)], words


def list_similar_words(words: Words, size: int, low: int, high: int) -> list[Delimiter]:
    """Return the best words with low to high occurrences among `size` operations."""
    near = np.flatnonzero((words.times >= low) & (words.times <= high))
    chosen = [(word, after) for after, order in words.rank(near) for word in order[:_MOST_SIMILAR].tolist()]
    return [words.delimit(word, after, size) for word, after in dict.fromkeys(chosen)]


# ---- words -----------------------------------------------------------------------------------------------------------


def find_words(name: IntArray, pause: IntArray, fewest: int) -> Words:
    """Return the even words that occur `fewest` times or more. `name`: checksum of each operation's name (n)."""
    parts = [_measure_words(word, width, pause, fewest) for width, word in _hash_words(name, fewest)]
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    checksum, width, times, first, span, even, paused, places = columns
    return Words(checksum, width, times, first, span, even, paused, np.cumsum(times) - times, places)


def _hash_words(name: IntArray, fewest: int) -> Iterator[tuple[int, IntArray]]:
    """Yield a width, 1, 2, 4 to _LONGEST_WORD, and the checksum of the word of this width at each place."""
    word, width = name.astype(np.uint64) * _FACTOR, 1
    while True:
        yield width, word.astype(np.int64)
        size = word.size - width
        if size < fewest or width == _LONGEST_WORD:
            return
        word = (word[:size] * np.uint64(3) + word[width:]) * _FACTOR
        word, width = word ^ (word >> np.uint64(29)), 2 * width


def _measure_words(word: IntArray, width: int, pause: IntArray, fewest: int) -> tuple[npt.NDArray[Any], ...]:
    """Return the even words of one width that occur `fewest` times or more: the columns of Words without `start`."""
    order = np.argsort(word, kind="stable")
    start = np.flatnonzero(np.diff(word[order], prepend=~word[order[:1]]))
    count = np.diff(np.append(start, order.size))
    frequent = np.repeat(count >= fewest, count)
    order, count = order[frequent], count[count >= fewest]
    start = np.cumsum(count) - count
    # Within each word, distances are sorted behind the one to the word before it, which is made the smallest.
    owner = np.repeat(np.arange(count.size), count)
    distance = np.diff(order, prepend=0)
    distance[start] = 0
    ranked = np.sort(owner * word.size + distance)
    median = ranked[start + 1 + (count - 2) // 2] - np.arange(count.size) * word.size
    span = order[start + count - 1] - order[start]
    even = median * (count - 1) / span
    mean_pause = np.add.reduceat(np.log1p(pause[order]), start) / count
    kept = np.flatnonzero(even >= _LEAST_EVEN)
    places = order[np.repeat(even >= _LEAST_EVEN, count)]
    columns = (word[order[start]], np.full(count.size, width), count, order[start], span, even, mean_pause)
    return (*(column[kept] for column in columns), places)


def _choose_words(words: Words) -> list[tuple[int, bool]]:
    """Return the best words of each class, and whether to cut after them.

    If there are many classes, those whose words span most of the task are tried.
    """
    number = np.floor(np.log(np.maximum(words.times, 1)) / np.log(_CLASS)).astype(np.int64)
    classes, class_of_word = np.unique(number, return_inverse=True)
    covered = np.zeros(classes.size)
    np.maximum.at(covered, class_of_word, words.span * np.minimum(words.even, 1))
    chosen: dict[tuple[int, bool], None] = {}
    for one in np.argsort(-covered, kind="stable")[:_MOST_CLASSES].tolist():
        for after, order in words.rank(np.flatnonzero(class_of_word == one)):
            chosen |= dict.fromkeys((word, after) for word in order[:_MOST_IN_CLASS].tolist())
    return list(chosen)


# ---- bursts and pauses -----------------------------------------------------------------------------------------------


def _list_bursts(work: LaunchedWork, fewest: int) -> list[Delimiter]:
    """Return the begins and the ends of bursts, those that are farthest apart first."""
    order = np.argsort(work.name, kind="stable")
    limits = np.searchsorted(work.name[order], np.arange(len(work.texts) + 1))
    found: list[tuple[float, Delimiter]] = []
    for number in range(len(work.texts)):
        places = order[limits[number] : limits[number + 1]]
        least_even = 0.0 if work.is_optimizer[number] else _LEAST_EVEN  # phases may lie between its steps
        for jump, first, after in _split_bursts(places, fewest, least_even):
            # The kernels of optimizers are tried, however close they are.
            weight = np.inf if work.is_optimizer[number] else jump
            checksum = int(work.checksum[number])
            found.append((weight, Delimiter(("burst", checksum), first)))
            found.append((weight, Delimiter(("after burst", checksum), after[after < work.name.size])))
    found.sort(key=lambda burst: (-burst[0], burst[1].kind[0], burst[1].first.size, burst[1].first[:1].tolist()))
    return [delimiter for _, delimiter in found[:_MOST_BURSTS]]


def _split_bursts(places: IntArray, fewest: int, least_even: float) -> Iterator[tuple[float, IntArray, IntArray]]:
    """Yield up to three ways to split places into bursts: jump of distances, begins of bursts, ends (after them)."""
    distance = np.diff(places)
    for jump, least in _find_jumps(distance.astype(np.float64), fewest, _LEAST_JUMP, 3):
        last = np.flatnonzero(distance >= least)
        even = np.median(distance[last]) * last.size / (places[-1] - places[0])
        if even >= least_even:
            yield jump, places[np.append(0, last + 1)], places[np.append(last, places.size - 1)] + 1


def _list_pauses(pause: IntArray, fewest: int) -> list[Delimiter]:
    """Return the operations after the longest pauses, for several lengths."""
    length = np.maximum(pause, _LEAST_PAUSE).astype(np.float64)
    jumps = _find_jumps(length, fewest, _LEAST_PAUSE_JUMP, _MOST_PAUSES)
    return [Delimiter(("pause", 0), np.flatnonzero(length >= least)) for _, least in jumps]


def _find_jumps(value: FloatArray, fewest: int, least: float, most: int) -> list[tuple[float, float]]:
    """Return (jump, least value above it) where sorted values jump by a factor of `least` or more, widest jumps first.

    There are at least fewest - 1 values above a jump.
    """
    ranked = np.sort(value)[::-1]
    jump = ranked[fewest - 2 : -1] / ranked[fewest - 1 :]
    widest = np.argsort(-jump, kind="stable")[:most]
    return [(float(jump[at]), float(ranked[fewest - 2 + at])) for at in widest[jump[widest] >= least].tolist()]
