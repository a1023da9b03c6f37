"""Splits the texts of NVTX ranges into names and the numbers that make every text unique.

PyTorch's `emit_nvtx` writes `aten::to, op_id = 990347` or `aten::mul, seq = 45, op_id = 7, sizes = [[8]]`, and users
write `step 3`: thousands of texts for a few dozen names. In a trace, the name is the value of the range's event and the
number is a separate event, so that a histogram has one column for each name.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.report.database import NULL

# One line, one blank between words: control characters (Cc), line and paragraph separators, all other blanks (Z).
_BLANKS = r"[\p{Cc}\p{Z}]+"
# The first PyTorch field and everything after it. A number must end there or be followed by the next field.
_SUFFIX = r"^(?P<name>.*?)(?P<suffix>, (?:(?:seq|op_id) = -?[0-9]+(?:,.*)?|(?:sizes|input_op_ids) = \[.*))$"
_FIELD = r", {} = (?P<number>-?[0-9]+)(?:,|$)"
# An integer that is the last word, and the separators before it.
_FINAL = r"^(?P<name>.*?)[ :=#]+(?P<number>-?[0-9]+)$"
# The rest must contain more than numbers: `7`, `10 20` and `12:30` are complete names.
_MORE_THAN_NUMBERS = r"[^-0-9 :=#]"


def split_numbers(texts: pa.Array) -> tuple[pa.Array, IntArray, BoolArray]:
    """Split NVTX texts, none of which is missing, into names and numbers.

    Return three arrays of n, the length of `texts`: names (string), numbers (int64; 0 if there is none), and whether
    there is a number. The rules, in this order:

    1. Each run of blanks, tabs, newlines and control characters becomes one blank; runs at both ends are removed.
    2. The text is cut at the first of PyTorch's fields: `, seq = N`, `, op_id = N`, `, sizes = [`,
       `, input_op_ids = [`. The number is the op_id, else the seq.
    3. An integer that is the last word, after a blank, `:`, `=` or `#`, is cut with the separators before it. It is the
       number if rule 2 found none: `step 3`, `iter=3`, `ProfilerStep#3`. So `iter 3, op_id = 8` becomes `iter` and 8.
       Digits within words stay (`layer0`, `bf16`, `v2.5`, `step_3`).
    4. A cut that would leave no name is not made (`7`, `10 20`, `, op_id = 3`). A number that does not fit int64 stays
       in the name, together with everything that rule 2 or 3 would have cut.
    """
    # Rule 2. Without a match the suffix is empty and the name is the whole text.
    whole, parts, suffix = _cut_suffix(texts)
    op_id, seq = (_get_number(pc.extract_regex(suffix, _FIELD.format(field))) for field in ("op_id", "seq"))
    digits = pc.if_else(pc.not_equal(op_id, ""), op_id, seq)
    cut = pc.and_(pc.not_equal(suffix, ""), pc.or_(pc.equal(digits, ""), _fits(digits)))
    stem = pc.utf8_trim(pc.fill_null(parts.field("name"), ""), " ")
    cut = pc.and_(cut, pc.not_equal(stem, ""))
    name = pc.if_else(cut, stem, whole)
    digits = pc.if_else(cut, digits, "")

    # Rule 3, unless rule 4 forbade the cut of rule 2.
    parts = pc.extract_regex(name, _FINAL)
    final, stem = _get_number(parts), pc.fill_null(parts.field("name"), "")
    last = pc.and_(_fits(final), pc.match_substring_regex(stem, _MORE_THAN_NUMBERS))
    last = pc.and_(last, pc.or_(cut, pc.equal(suffix, "")))
    name = pc.if_else(last, stem, name)
    digits = pc.if_else(pc.and_(last, pc.equal(digits, "")), final, digits)

    has_number = pc.not_equal(digits, "")
    numbers = pc.cast(pc.if_else(has_number, digits, "0"), pa.int64())
    return name, numbers.to_numpy(zero_copy_only=False), has_number.to_numpy(zero_copy_only=False)


def read_sequence_numbers(texts: pa.Array) -> IntArray:
    """Return PyTorch's sequence number in each NVTX text (n); NULL for a text without one.

    It is the field `, seq = N`, which links operators to their backward passes: their ranges have the same number.
    """
    numbers = np.full(len(texts), NULL, np.int64)
    possible = pc.match_substring(texts, "seq").to_numpy(zero_copy_only=False)  # most reports have none
    if possible.any():
        digits = _get_number(pc.extract_regex(_cut_suffix(texts.filter(possible))[2], _FIELD.format("seq")))
        has_number = pc.and_(_fits(digits), pc.invert(pc.starts_with(digits, "-")))
        found = pc.cast(pc.if_else(has_number, digits, str(NULL)), pa.int64())
        numbers[possible] = found.to_numpy(zero_copy_only=False)
    return numbers


def _cut_suffix(texts: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the texts on one line, the parts into which PyTorch's fields divide them, and these fields ("": none)."""
    whole = pc.utf8_trim(pc.replace_substring_regex(texts, _BLANKS, " "), " ")
    parts = pc.extract_regex(whole, _SUFFIX)
    return whole, parts, pc.fill_null(parts.field("suffix"), "") if len(whole) else whole


def _get_number(parts: pa.Array) -> pa.Array:
    """Return the field `number` of a regex's matches; empty if there is no match."""
    return pc.fill_null(parts.field("number"), "")


def _fits(digits: pa.Array) -> pa.Array:
    """Return whether each `-?[0-9]+` fits int64. Numbers of equal length compare as texts."""
    magnitude = pc.utf8_ltrim(pc.utf8_ltrim(digits, "-"), "0")
    length = pc.utf8_length(magnitude)
    limit = pc.if_else(pc.starts_with(digits, "-"), "9223372036854775808", "9223372036854775807")
    short = pc.less(length, 19)
    return pc.and_(
        pc.not_equal(digits, ""), pc.or_(short, pc.and_(pc.equal(length, 19), pc.less_equal(magnitude, limit)))
    )
