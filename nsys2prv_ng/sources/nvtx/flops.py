"""Counts the floating-point operations (FLOPs) of PyTorch's operators from the shapes in the texts of their ranges.

`emit_nvtx(record_shapes=True)` writes `aten::mm, op_id = 7, sizes = [[64, 9], [9, 8]], input_op_ids = [(3,0), (0,-1)]`
with one size for each argument, `[]` for what is no tensor. Counted are matrix products, scaled dot product attention
and convolutions, by the formulas of `torch.utils.flop_counter` (a multiplication and an addition are two operations):

- A product of m x k and k x n takes 2 m k n. Additions of a bias or a matrix do not count.
- Attention takes two such products forward and five backward, whether it is causal or not.
- A convolution takes 2 N s w, with the batch N, the w elements of the weight, and the s positions of the output, or of
  the input if it is transposed. Its gradients of the input and of the weight take as much each. PyTorch's counter
  multiplies that of the weight by the number of groups; this module does not, since no kernel computes that.

Operators call others: only the outermost of the counted ones counts, as in PyTorch's counter, so no work counts twice.
The text of a convolution contains neither the size of the output nor which gradients are wanted. Both follow from the
operators that take its results (`input_op_ids`); without them, it does not count. If weights do not show whether it is
transposed, the smaller number counts. A text that is no such list, or a number beyond 64 bits, does not count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsys2prv_ng.arrays.row_keys import find_distinct_rows, sort_nested
from nsys2prv_ng.arrays.types import BoolArray, IntArray, put
from nsys2prv_ng.intervals.nesting import find_innermost, measure_depths
from nsys2prv_ng.sources.nvtx.events import PUSH_POP, NvtxEvents, read_nvtx_events
from nsys2prv_ng.sources.shared.report_reader import ReportReader, encode_texts

Shape = tuple[int, ...]

_MOST = 2**63 - 1
_LISTS = re.compile(r"\[(\[[0-9, ]*\](?:, \[[0-9, ]*\])*)\]")
_SIZE = re.compile(r"(?:[0-9]{1,18}(?:, [0-9]{1,18})*)?")
_FIELDS = (
    r"^(?P<name>[^,]+)(?:, seq = -?[0-9]+)?(?:, op_id = (?P<op>[0-9]{1,18}))?"
    r", sizes = (?P<sizes>\[[][0-9, ]*\])(?:, input_op_ids = \[(?P<inputs>[()0-9, -]*)\])?$"
)
_CONVOLUTIONS = ("aten::convolution", "aten::_convolution")
_GRADIENTS = "aten::convolution_backward"
_PARTS_OF_CONVOLUTION = r"^aten::\w*conv\w*"


def parse_sizes(text: str) -> list[Shape] | None:
    """Return the shape of each argument in a list such as `[[64, 512], []]`; None for any other text."""
    lists = _LISTS.fullmatch(text)
    if lists is None:
        return None
    sizes = lists[1][1:-1].split("], [")
    if not all(map(_SIZE.fullmatch, sizes)):
        return None
    return [tuple(map(int, size.split(", "))) if size else () for size in sizes]


# ---- formulas: 0 for shapes that do not fit ------------------------------------------------------------------------


def _multiply(a: Shape, b: Shape) -> int:
    return 2 * a[0] * a[1] * b[1] if len(a) == len(b) == 2 and a[1] == b[0] else 0


def _multiply_batches(a: Shape, b: Shape) -> int:
    return a[0] * _multiply(a[1:], b[1:]) if len(a) == len(b) == 3 and a[0] == b[0] else 0


def _attend(shapes: Sequence[Shape], with_keys: int, with_values: int) -> int:
    """Return the FLOPs of products as wide as keys, and as values. `shapes`: b, h, s, d of query, key and value."""
    query, key, value = shapes
    if not len(query) == len(key) == len(value) == 4:
        return 0
    b, h, s, d = query
    fits = key[:3] == value[:3] and key[0] == b and key[3] == d and key[1] and not h % key[1]
    return 2 * b * h * s * key[2] * (with_keys * d + with_values * value[3]) if fits else 0


def _convolve(source: Shape, weight: Shape, target: Shape) -> int:
    """Return the FLOPs of a convolution from one shape to another, transposed or not, or of one of its gradients."""
    rank = len(weight)
    if not 3 <= rank == len(source) == len(target) or source[0] != target[0] or not weight[1]:
        return 0
    is_plain = target[1] == weight[0] and not source[1] % weight[1]
    is_transposed = source[1] == weight[0] and not target[1] % weight[1]
    positions = [math.prod(shape[2:]) for shape, fits in ((target, is_plain), (source, is_transposed)) if fits]
    return 2 * source[0] * math.prod(weight) * min(positions, default=0)


_ATTENTIONS = [f"aten::_scaled_dot_product_{kind}_attention" for kind in ("flash", "efficient", "cudnn")]
_FORMULAS: dict[str, Callable[[Sequence[Shape]], int]] = {
    "aten::mm": lambda sizes: _multiply(*sizes[:2]),
    "aten::addmm": lambda sizes: _multiply(*sizes[1:3]),
    "aten::_addmm_activation": lambda sizes: _multiply(*sizes[1:3]),
    "aten::_scaled_mm": lambda sizes: _multiply(*sizes[:2]),
    "aten::bmm": lambda sizes: _multiply_batches(*sizes[:2]),
    "aten::baddbmm": lambda sizes: _multiply_batches(*sizes[1:3]),
    **dict.fromkeys(_ATTENTIONS, lambda sizes: _attend(sizes[:3], 1, 1)),
    **dict.fromkeys((f"{name}_backward" for name in _ATTENTIONS), lambda sizes: _attend(sizes[1:4], 3, 2)),
}
_ANY_COUNTED = rf"^(?:{'|'.join((*_FORMULAS, *_CONVOLUTIONS, _GRADIENTS))}),"


def _count(name: str, sizes: str) -> int:
    """Return the FLOPs of an operator whose sizes show them, else 0."""
    shapes = parse_sizes(sizes)
    if shapes is None or len(shapes) < 2 or name not in _FORMULAS:
        return 0
    try:
        flops = _FORMULAS[name](shapes)
    except (TypeError, ValueError):  # too few arguments
        return 0
    return flops if flops <= _MOST else 0


def _count_convolution(name: str, sizes: str, target: str) -> int:
    """Return the FLOPs of a convolution with a result of a size, or of one gradient ("": of any size); else 0."""
    shapes, results = parse_sizes(sizes), parse_sizes(f"[[{target}]]")
    if shapes is None or results is None or len(shapes) < (3 if name == _GRADIENTS else 2):
        return 0
    source, weight, result = (shapes[1], shapes[2], shapes[0]) if name == _GRADIENTS else (*shapes[:2], results[0])
    flops = _convolve(source, weight, result)
    return flops if 2 * flops <= _MOST else 0


# ---- texts ---------------------------------------------------------------------------------------------------------


def count_flops(reader: ReportReader) -> IntArray:
    """Return the FLOPs of each row of the table: of the outermost counted operators on each thread, else 0."""
    events = reader.once(read_nvtx_events)
    flops = np.zeros(events.ends.size, np.int64)
    texts = events.texts.original
    chosen = np.flatnonzero(_to_mask(pc.match_substring_regex(texts, _ANY_COUNTED)))
    if not chosen.size or "" not in events.domains:
        return flops
    fields = pc.extract_regex(texts.take(pa.array(chosen)), _FIELDS)
    code_of_text = put(np.arange(chosen.size), chosen, len(texts))
    rows = events.select_domain("", PUSH_POP)  # PyTorch's ranges have no domain
    rows = rows[code_of_text[events.texts.index[rows]] >= 0]
    is_outer = measure_depths(events.columns["globalTid"][rows], events.columns["start"][rows], events.ends[rows]) == 1
    rows = rows[is_outer]
    code = code_of_text[events.texts.index[rows]]
    flops[rows] = _count_texts(fields)[code]
    is_convolution = _to_mask(pc.is_in(fields.field("name"), pa.array((*_CONVOLUTIONS, _GRADIENTS))))[code]
    if is_convolution.any():
        rows = rows[is_convolution]
        flops[rows] = _count_convolutions(events, rows, pc.extract_regex(texts, _FIELDS))
    return flops


def _to_mask(values: pa.Array) -> BoolArray:
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)


def _encode(values: pa.Array) -> tuple[IntArray, list[str]]:
    """Return (index of each text among the distinct ones, distinct texts); missing texts are empty."""
    return encode_texts(pc.fill_null(values, ""))


def _count_texts(fields: pa.StructArray) -> IntArray:
    """Return the FLOPs of each text. Operators repeat with few sizes: each combination is parsed once."""
    (names, by_name), (lists, by_list) = (_encode(fields.field(key)) for key in ("name", "sizes"))
    codes, distinct = find_distinct_rows(names, lists)
    return np.array([_count(by_name[name], by_list[sizes]) for name, sizes in distinct], np.int64)[codes]


# ---- convolutions --------------------------------------------------------------------------------------------------


def _count_convolutions(events: NvtxEvents, rows: IntArray, fields: pa.StructArray) -> IntArray:
    """Return the FLOPs of the convolutions and gradients `rows`, by the operators that take their results; else 0."""
    text = events.texts.index[rows]
    name, sizes = (_encode(fields.field(key).take(pa.array(text))) for key in ("name", "sizes"))
    is_gradient = name[0] == (name[1].index(_GRADIENTS) if _GRADIENTS in name[1] else -1)
    maker, number, size, by_size = _find_takers(fields, events, rows, is_gradient)
    low, high = np.full(rows.size, _MOST), np.zeros(rows.size, np.int64)
    codes, distinct = find_distinct_rows(name[0][maker], sizes[0][maker], size)
    counts = [_count_convolution(name[1][n], sizes[1][s], by_size[t]) for n, s, t in distinct]
    flops = np.array(counts, np.int64)[codes] if counts else np.zeros(0, np.int64)
    known = flops > 0
    np.minimum.at(low, maker[known], flops[known])
    np.maximum.at(high, maker[known], flops[known])
    wanted = np.zeros((2, rows.size), np.bool_)
    gradient = is_gradient[maker] & (number < 2)  # of the input and of the weight; the third is of the bias
    wanted[number[gradient], maker[gradient]] = True
    times = np.where(is_gradient, wanted.sum(axis=0), 1)
    return np.where(low == high, times * high, 0)


def _find_takers(
    fields: pa.StructArray, events: NvtxEvents, rows: IntArray, is_gradient: BoolArray
) -> tuple[IntArray, IntArray, IntArray, list[str]]:
    """Return the n arguments that are results of some convolutions: convolution, number of the result, size; all sizes.

    A result comes from the outermost range that returns it: the convolution, a range within, or the one around.
    """
    made, ids = _list_makers(events, rows, is_gradient, fields)
    inputs, sizes = fields.field("inputs"), fields.field("sizes")
    inputs = pc.split_pattern(pc.utf8_trim(inputs, "()"), "), (")
    sizes = pc.split_pattern(pc.utf8_slice_codeunits(sizes, 2, -2), "], [")
    fits = pc.fill_null(pc.equal(pc.list_value_length(inputs), pc.list_value_length(sizes)), False)
    inputs, sizes = (pc.list_flatten(column.filter(fits)) for column in (inputs, sizes))
    parts = pc.extract_regex(inputs, r"^(?P<op>[0-9]{1,18}),(?P<number>[0-9]{1,9})$")
    found = pc.index_in(parts.field("op"), ids)
    taken = np.flatnonzero(_to_mask(pc.is_valid(found)))
    at = pa.array(taken)
    maker = made[found.take(at).to_numpy(zero_copy_only=False).astype(np.int64)]
    number = pc.cast(parts.field("number").take(at), pa.int64()).to_numpy(zero_copy_only=False)
    size, by_size = _encode(sizes.take(at))
    whole = (maker >= 0) & (is_gradient[maker] | (number == 0))
    return maker[whole], number[whole], size[whole], by_size


def _list_makers(
    events: NvtxEvents, rows: IntArray, is_gradient: BoolArray, fields: pa.StructArray
) -> tuple[IntArray, pa.Array]:
    """Return (index of the convolution among `rows`, its ids): of ranges that may return its result, each id once.

    The ranges of gradients are these themselves. For others, these are all ranges of the outermost range of a
    convolution, unless it has several: then the index is -1.
    """
    every = events.select_domain("", PUSH_POP)
    is_part = _to_mask(pc.match_substring_regex(fields.field("name"), _PARTS_OF_CONVOLUTION))
    every = every[is_part[events.texts.index[every]]]
    tid, begin, end = events.columns["globalTid"], events.columns["start"], events.ends
    every = every[sort_nested(tid[every], begin[every], end[every])]
    none = np.zeros(0, np.int64)
    nesting = find_innermost(tid[every], begin[every], end[every], none, none)
    root = np.arange(every.size)
    for _ in range(int(nesting.depth.max(initial=0))):
        root = np.where(nesting.parent[root] >= 0, nesting.parent[root], root)
    order = np.argsort(every)
    at = order[np.searchsorted(every[order], rows)]
    of_root = put(np.arange(rows.size), root[at], every.size)
    of_root[np.bincount(root[at], minlength=every.size) > 1] = -1
    maker = of_root[root]
    itself = put(np.arange(rows.size), at, every.size)
    maker = np.where((maker >= 0) & is_gradient[maker], itself, maker)
    ids = fields.field("op").take(pa.array(events.texts.index[every]))
    index, distinct = _encode(ids)
    first = np.full(len(distinct), -1, np.int64)
    used = maker >= 0
    first[index[used]] = maker[used]
    several = np.zeros(len(distinct), np.bool_)
    several[index[used]] = first[index[used]] != maker[used]
    return np.where(several, -1, first), pa.array(distinct, pa.string())
