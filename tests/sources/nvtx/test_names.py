"""Splitting NVTX texts: literals by hand, a brute-force splitter with Python's `re`, and counts on real reports."""

import contextlib
import re
import sqlite3
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.sources.nvtx.events import split_numbers
from tests.conftest import REPORTS, SAMPLES
from tests.examples import examples

MAX = 2**63 - 1

CASES: list[tuple[str, str, int | None]] = [
    # PyTorch's emit_nvtx
    ("aten::to, op_id = 990347", "aten::to", 990347),
    ("aten::detach_, seq = 45328, op_id = 990724", "aten::detach_", 990724),
    ("aten::mul, seq = 12", "aten::mul", 12),
    (
        "aten::linear, seq = 0, op_id = 1, sizes = [[64, 512], [512]], input_op_ids = [(0,-1), (0,-1)]",
        "aten::linear",
        1,
    ),
    ("aten::t, op_id = 3, sizes = [[512, 512], [], []]", "aten::t", 3),
    ("aten::empty, op_id = 0", "aten::empty", 0),
    ("AddmmBackward0, seq = 5, sizes = [[]]", "AddmmBackward0", 5),
    ("aten::add, sizes = [[2]]", "aten::add", None),
    ("aten::add, input_op_ids = [(6,0)]", "aten::add", None),
    ("aten::add, input_op_ids = [(6,0)], op_id = 4", "aten::add", 4),
    ("aten::add, sizes = [[1, 2], [3", "aten::add", None),  # a text cut off by someone else
    ("Optimizer.step#Adam.step, op_id = 9", "Optimizer.step#Adam.step", 9),
    ("ProfilerStep#12, op_id = 9", "ProfilerStep", 9),
    ("iter 3, op_id = 8", "iter", 8),
    ("iter 3, sizes = [[1]]", "iter", 3),
    ("7, op_id = 8", "7", 8),
    # not PyTorch's
    ("load, seq = fast", "load, seq = fast", None),
    ("load, op_id = 3x", "load, op_id = 3x", None),
    ("load, op_id=3", "load, op_id", 3),
    ("load, sizes = 3", "load, sizes", 3),
    ("op_id = 3", "op_id", 3),
    (", op_id = 3", ", op_id = 3", None),
    # a final integer
    ("step 3", "step", 3),
    ("iteration 12", "iteration", 12),
    ("iter=12", "iter", 12),
    ("iter = 12", "iter", 12),
    ("step: 3", "step", 3),
    ("step:3", "step", 3),
    ("ProfilerStep#12", "ProfilerStep", 12),
    ("forward #3", "forward", 3),
    ("micro batch 1 of 4", "micro batch 1 of", 4),
    ("step 007", "step", 7),
    ("delta -3", "delta", -3),
    ("delta=-3", "delta", -3),
    ("step 0", "step", 0),
    # digits that stay
    ("layer0", "layer0", None),
    ("bf16", "bf16", None),
    ("v2", "v2", None),
    ("v2.5", "v2.5", None),
    ("version 2.5", "version 2.5", None),
    ("step_3", "step_3", None),
    ("step-3", "step-3", None),
    ("step/3", "step/3", None),
    ("layer 3 forward", "layer 3 forward", None),
    ("step 3.", "step 3.", None),
    ("step 3)", "step 3)", None),
    ("(3 4)", "(3 4)", None),
    ("0x10", "0x10", None),
    ("step +3", "step +3", None),
    ("step --3", "step --3", None),
    ("étape 3", "étape", 3),
    ("步骤 3", "步骤", 3),
    ("step ٣", "step ٣", None),  # a digit, but not 0-9
    # nothing would be left
    ("7", "7", None),
    ("-7", "-7", None),
    ("10 20", "10 20", None),
    ("12:30", "12:30", None),
    ("#3", "#3", None),
    ("", "", None),
    # int64
    (f"a {MAX}", "a", MAX),
    (f"a {MAX + 1}", f"a {MAX + 1}", None),
    (f"a {-MAX - 1}", "a", -MAX - 1),
    (f"a {-MAX - 2}", f"a {-MAX - 2}", None),
    (f"a 000{MAX}", "a", MAX),
    (f"a {'0' * 30}", "a", 0),
    ("a 99999999999999999999999", "a 99999999999999999999999", None),
    (f"aten::to, op_id = {MAX}", "aten::to", MAX),
    (f"aten::to, op_id = {MAX + 1}", f"aten::to, op_id = {MAX + 1}", None),
    (f"aten::to, seq = 3, op_id = {MAX + 1}", f"aten::to, seq = 3, op_id = {MAX + 1}", None),
    # one line
    ("two\nlines", "two lines", None),
    ("tab\tand \r\n more", "tab and more", None),
    ("  padded   twice  ", "padded twice", None),
    ("step\t3", "step", 3),
    ("step 3\n", "step", 3),
    ("nul\x00bell\x07", "nul bell", None),
    ("wide\u00a0blank\u2028line\u0085next", "wide blank line next", None),
    (" \t\n", "", None),
    ("aten::to,\top_id = 3", "aten::to", 3),
    # long
    ("x" * 600, "x" * 600, None),  # labels are cut in the .pcf, not names
    ("x" * 600 + " 3", "x" * 600, 3),
]


@pytest.mark.parametrize(("text", "name", "number"), CASES, ids=[repr(case[0])[:40] for case in CASES])
def test_literals(text: str, name: str, number: int | None) -> None:
    names, numbers, has_number = split_numbers(pa.array([text]))
    assert names.to_pylist() == [name]
    assert (numbers.tolist(), has_number.tolist()) == ([number or 0], [number is not None])


def test_all_at_once_in_order_with_repeats() -> None:
    cases = CASES + [("step 3", "step", 3)] * 3 + CASES[::-1]
    names, numbers, has_number = split_numbers(pa.array([text for text, _, _ in cases]))
    assert names.to_pylist() == [name for _, name, _ in cases]
    assert numbers.tolist() == [number or 0 for _, _, number in cases]
    assert has_number.tolist() == [number is not None for _, _, number in cases]


@pytest.mark.parametrize("texts", [pa.array(["a 1", "b"]), pa.array(["before", "a 1", "b"])[1:]])
def test_types(texts: pa.Array) -> None:
    names, numbers, has_number = split_numbers(texts)
    assert names.type == pa.string() and names.to_pylist() == ["a", "b"]
    assert numbers.dtype == np.int64 and numbers.tolist() == [1, 0]
    assert has_number.dtype == np.bool_ and has_number.tolist() == [True, False]


def test_nothing_to_split() -> None:
    names, numbers, has_number = split_numbers(pa.array([], pa.string()))
    assert names.type == pa.string() and len(names) == 0
    assert numbers.dtype == np.int64 and numbers.size == 0
    assert has_number.dtype == np.bool_ and has_number.size == 0


def brute_force(text: str) -> tuple[str, int | None]:
    """The documented rules, character by character and field by field."""
    blanks = "".join(" " if unicodedata.category(c)[0] == "Z" or unicodedata.category(c) == "Cc" else c for c in text)
    whole = re.sub(" +", " ", blanks).strip(" ")
    name, number = whole, None
    starts = [
        match.start()
        for start in range(len(whole))
        if (match := re.compile(r", ((seq|op_id) = -?[0-9]+(,|\Z)|(sizes|input_op_ids) = \[)").match(whole, start))
    ]
    if starts:
        fields: dict[str, int] = {}
        for field, digits in re.findall(r", (seq|op_id) = (-?[0-9]+)(?=,|\Z)", whole[starts[0] :]):
            fields.setdefault(field, int(digits))
        number = fields.get("op_id", fields.get("seq"))
        stem = whole[: starts[0]].strip(" ")
        if not stem or (number is not None and not -(2**63) <= number < 2**63):
            return whole, None
        name = stem
    if match := re.search(r"[ :=#](-?[0-9]+)\Z", name):
        stem, final = name[: match.start()].rstrip(" :=#"), int(match.group(1))
        if stem.strip("-0123456789 :=#") and -(2**63) <= final < 2**63:
            name = stem
            number = final if number is None else number
    return name, number


def test_brute_force_agrees_with_the_literals() -> None:
    for text, name, number in CASES:
        assert brute_force(text) == (name, number), text


FIELDS = (", op_id = ", ", seq = ", ", sizes = [[", "]]", ", input_op_ids = [(", ")]")
WORDS = ("step", "aten::to", " ", ":", "=", "#", "-", ",", ", ", "\n", "\t", "\x00", "\u00a0", "_", ".", "é", "x" * 499)
NUMBERS = ("0", "3", "42", str(MAX), str(MAX + 1))
PIECES = st.sampled_from(FIELDS + WORDS + NUMBERS)
TEXTS = st.one_of(st.lists(PIECES, max_size=8).map("".join), st.text(max_size=30))


@pytest.mark.slow
@settings(max_examples=examples(1000), deadline=None)
@given(st.lists(TEXTS, max_size=12))
def test_agrees_with_brute_force(texts: list[str]) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    names, numbers, has_number = split_numbers(pa.array(texts, pa.string()))
    expected = [brute_force(text) for text in texts]
    assert names.to_pylist() == [name for name, _ in expected]
    assert numbers.tolist() == [number or 0 for _, number in expected]
    assert has_number.tolist() == [number is not None for _, number in expected]


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(st.lists(TEXTS, max_size=12))
def test_names_are_single_lines(texts: list[str]) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    for name in split_numbers(pa.array(texts, pa.string()))[0].to_pylist():
        assert name == " ".join(name.split()) and len(name.splitlines()) <= 1


def _texts(path: Path) -> list[str]:
    """Texts of marks and ranges, by plain SQL."""
    if not path.exists():
        pytest.skip(f"the large reports are not here: {path}")
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        query = """SELECT coalesce(n.text, s.value) FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId
                   WHERE n.eventType IN (34, 59, 60, 70, 71)"""
        return [text for (text,) in database.execute(query) if text is not None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("report", "distinct", "names_left"),
    [
        ("public/mfu_2gpu_before.sqlite", 18499, 93),
        ("public/h100_2gpu_1s.sqlite", 16582, 176),
        ("gpu/autograd-1.sqlite", 1896, 37),
    ],
)
def test_real_pytorch_reports(report: str, distinct: int, names_left: int) -> None:
    texts = _texts(REPORTS / report)
    assert len(set(texts)) == distinct
    names, numbers, has_number = split_numbers(pa.array(texts))
    assert len(set(names.to_pylist())) == names_left
    assert list(zip(names.to_pylist(), np.where(has_number, numbers, -1).tolist(), strict=True)) == [
        (name, -1 if number is None else number) for name, number in map(brute_force, texts)
    ]


def test_sample_report() -> None:
    texts = _texts(SAMPLES / "ddp-2x2.rank0.sqlite")
    names, numbers, has_number = split_numbers(pa.array(texts))
    steps = [(name, number) for name, number in zip(names.to_pylist(), numbers.tolist(), strict=True) if name == "step"]
    assert sorted(steps) == [("step", number) for number in range(6)]
    assert {"layer0", "layer5"} <= set(names.to_pylist())
    assert has_number.sum() == 6
