"""Groups the steps of a job into kinds whose work differs: training and validation, prefill and decode.

Definitions:

- Ranges that mark steps may say their kind. The marker of a serving engine has the requests of its batch: *prefill* if
  it only has context, *decode* if it only has generation, else *mixed* or *idle*. Other texts differ in more than
  their numbers: `train 3` and `eval 4` are two kinds.
- Among steps that the texts do not tell apart, or among those of the most frequent text, the work tells
  (steps/work_kinds.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.groups import encode_key
from nsys2prv_ng.arrays.types import IntArray, IntTable, put
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.steps.spans import HostSpans
from nsys2prv_ng.steps.work_kinds import divide_by_work, load_content, may_differ, name_work

ORDINARY, OTHER = "ordinary", "other"
"""Name of the most frequent kind by its work, and of all kinds beyond MOST_KINDS."""
MOST_KINDS = 4
"""Most kinds with a name of their own, so that a table and a line have room for them: a choice."""
_DEVIATIONS = 3
"""A step at the start is warm-up if it exceeds the median of its kind by more than this many median deviations."""


class Kinds(NamedTuple):
    """The kinds of m steps: their names, the most frequent first, and the index of each step's kind (m).

    `batches`: context requests and tokens, generation requests and tokens of each step (m x 4), -1 if the marker does
    not have them; m x 0 without the marker of an engine. `warmup`: how many steps at the start are warm-up.
    """

    names: tuple[str, ...]
    kind: IntArray
    batches: IntTable
    warmup: int


def find_kinds(
    spans: HostSpans,
    step: IntArray,
    length: IntArray,
    texts: npt.NDArray[np.object_] | None,
    jobs: tuple[Sequence[ReportRecords], ObjectTree, Store],
    *,
    are_ranges: bool,
) -> Kinds:
    """Return the kinds of the steps of a job, which take `length` (m, ns), and its warm-up.

    `spans`, `step`, `texts`: the ranges that mark the steps (n), the step of each, and what they say. `are_ranges`:
    whether they are NVTX ranges; else the launches of operations.
    """
    names, kind, batches = [""], np.zeros(length.size, np.int64), np.zeros((length.size, 0), np.int64)
    if texts is not None:
        names, kind, batches = name_kinds(texts, spans.task, step, length.size)
    warmup = _count_warmup(length, kind)
    counted = np.arange(length.size) >= warmup
    main = int(np.argmax(np.bincount(kind)))
    chosen = kind == main
    if not batches.size and may_differ(length[chosen & counted]):
        content = load_content(spans, step, *jobs, are_ranges=are_ranges)
        found = divide_by_work(content, length, chosen, counted)
        of_work = name_work(content, found, length.size)
        for number in range(1, len(of_work)):
            kind[found == number] = len(names)
            names.append(" ".join(filter(None, [names[main], of_work[number]])))
        names[main] = names[main] or (ORDINARY if len(of_work) > 1 else "")
    return Kinds(*_limit(names, kind), batches, warmup)


def _count_warmup(length: IntArray, kind: IntArray) -> int:
    """Return the number of warm-up steps at the start, given the length (ns) of each step and its kind by name."""
    excess, deviation = np.zeros(length.size), np.zeros(length.size)
    for number in np.unique(kind):
        own = kind == number
        excess[own] = length[own] - np.median(length[own])
        deviation[own] = np.median(np.abs(excess[own]))
    slow = excess > _DEVIATIONS * deviation
    return 1 + int(np.argmin(np.append(slow[1 : length.size // 2], False)))


def _limit(names: Sequence[str], kind: IntArray) -> tuple[tuple[str, ...], IntArray]:
    """Return the kinds by how frequent they are, the earlier first of equal ones, with all beyond MOST_KINDS as one."""
    used, first, count = np.unique(kind, return_index=True, return_counts=True)
    order = used[np.lexsort((first, -count))]
    rank = put(np.minimum(np.arange(order.size), MOST_KINDS), order, len(names), 0)
    kept = [names[number] for number in order[:MOST_KINDS].tolist()]
    return (*kept, *([OTHER] if order.size > MOST_KINDS else [])), rank[kind]


# ---- by name ---------------------------------------------------------------------------------------------------------


PREFILL, DECODE, MIXED, IDLE = "prefill", "decode", "mixed", "idle"
_TOKENS = r"\((?:sq)?(\d{1,12})(?:[a-z]\w*)?\)"
_VLLM = re.compile(rf"execute_(?:\d+_)?context_(\d{{1,12}}){_TOKENS}_generation_(\d{{1,12}}){_TOKENS}")
_TENSORRT = re.compile(
    r"\[Executor\] _forward_step(?: \d+)?: (\d{1,12}) ctx reqs,(?: (\d{1,12}) ctx tokens,)? (\d{1,12}) gen reqs"
)
_SGLANG = re.compile(r"step\[(\w+) bs=(\d{1,12})((?: \w+=\d{1,12})*)\]")
_SGLANG_MODES = {"EXTEND": PREFILL, "DECODE": DECODE, "TARGET_VERIFY": DECODE, "MIXED": MIXED, "IDLE": IDLE}
"""Modes of SGLang's batches (`build_step_span_name`). A verification generates the tokens of a draft."""
_NUMBER = re.compile(r"\{n\}|\*|-?\d+(?:\.\d+)*(?:[eE][-+]?\d+)?")
_ENDS = re.compile(r"(?:[\s:=#_/.,-]*\{n\})+[\s:=#_/.,-]*$")


class Batch(NamedTuple):
    """What the marker of an engine says about a batch: its kind, requests and tokens; -1 if it does not say."""

    kind: str
    context: int
    context_tokens: int
    generation: int
    generation_tokens: int


def read_batch(text: str) -> Batch | None:
    """Return the batch of a step from the marker of vLLM, TensorRT-LLM or SGLang; None for any other text.

    A step of TensorRT-LLM generates at least a token a request, and its marker does not have how many.
    """
    if match := _VLLM.fullmatch(text):
        return _make_batch(*map(int, match.groups()))
    if match := _TENSORRT.fullmatch(text):
        context, tokens, generation = (-1 if number is None else int(number) for number in match.groups())
        return _make_batch(context, tokens, generation, -1 if generation else 0)
    if (match := _SGLANG.fullmatch(text)) and (mode := _SGLANG_MODES.get(match[1])):
        size, more = int(match[2]), dict(part.split("=") for part in match[3].split())
        context = int(more.get("c", size if mode == PREFILL else -1 if mode == MIXED else 0))
        generation = int(more.get("g", size if mode == DECODE else -1 if mode == MIXED else 0))
        tokens = int(more.get("toks" if mode == PREFILL else "c_sq", -1 if mode == MIXED else 0))
        generated = int(more.get("g_sq", generation if match[1] == "DECODE" else 0 if mode == PREFILL else -1))
        return Batch(mode, context, tokens, generation, generated)
    return None


def _make_batch(context: int, context_tokens: int, generation: int, generation_tokens: int) -> Batch:
    kind = MIXED if context and generation else PREFILL if context else DECODE if generation else IDLE
    return Batch(kind, context, context_tokens, generation, generation_tokens)


def cut_numbers(text: str) -> str:
    """Return a text, or a template (steps/numbered_names.py), without what differs by number: `train` of `train 3`."""
    return _ENDS.sub("", _NUMBER.sub("{n}", text)) or text


def name_kinds(
    texts: npt.NDArray[np.object_], task: IntArray, step: IntArray, steps: int
) -> tuple[list[str], IntArray, IntTable]:
    """Return names, the index of each step's name (m), and its batch (m x 4, or m x 0), by what the spans (n) say.

    Tasks whose markers are equal in each step share a batch, as with tensor parallelism. Otherwise each has a batch of
    its own: they add up. If tasks call a step by several names, its kind has all of them. Names do not tell kinds if
    they are too many.
    """
    text = encode_key(texts)
    distinct = texts[np.unique(text, return_index=True)[1]].tolist()
    batches = [read_batch(each) for each in distinct]
    labels = [cut_numbers(each) if batch is None else batch.kind for each, batch in zip(distinct, batches, strict=True)]
    known = sorted(set(labels))
    nothing = [""], np.zeros(steps, np.int64), np.zeros((steps, 0), np.int64)
    if len(known) > _MOST_LABELS:
        return nothing
    marks = np.zeros(steps, np.int64)
    np.bitwise_or.at(marks, step, 1 << np.array([known.index(each) for each in labels], np.int64)[text])
    sets, which = np.unique(marks, return_inverse=True)
    joined = [_join_labels([each for n, each in enumerate(known) if mark >> n & 1]) for mark in sets.tolist()]
    names = sorted(set(joined))
    kind = np.array([names.index(each) for each in joined], np.int64)[which]
    if all(batch is None for batch in batches):
        return (names, kind, nothing[2]) if 1 < len(names) <= steps // 2 else nothing
    numbers = np.array([[0] * 4 if batch is None else batch[1:] for batch in batches], np.int64)[text]
    _, first, index = np.unique(step, return_index=True, return_inverse=True)
    if (text == text[first][index]).all():
        return names, kind, numbers[first]
    summed, unknown = np.zeros((steps, 4), np.int64), np.zeros((steps, 4), np.bool_)
    np.add.at(summed, step, numbers)
    np.logical_or.at(unknown, step, numbers < 0)
    return names, kind, np.where(unknown, -1, summed)


_MOST_LABELS = 62
"""Most names of steps, so that a set of them fits into an integer."""


def _join_labels(labels: Sequence[str]) -> str:
    """Return the kind of a step that tasks call by these names: prefill on one and decode on another is mixed."""
    busy = [label for label in labels if label != IDLE]
    if len(busy) > 1 and {PREFILL, DECODE, MIXED}.issuperset(busy):
        return MIXED
    return " and ".join(busy or labels)
