from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.paraver.checker.trace_lines import NOT_INTEGER, OVERFLOW, split_fields
from tests.examples import examples

pytestmark = pytest.mark.slow

FIELD = st.one_of(
    st.text("0123456789-+. \rex#\xff", max_size=24),
    st.integers(-(2**64), 2**64).map(str),
    st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**18, 10**19, 10**20]).map(str),
    st.integers(0, 9).map(lambda digit: "0" * 20 + str(digit)),
)


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(st.lists(FIELD, min_size=1, max_size=4), min_size=1, max_size=4))
def test_fields_are_read_as_python_reads_integers(lines: list[list[str]]) -> None:
    text = "".join(":".join(fields) + "\n" for fields in lines).encode("latin-1")
    split = [line.removesuffix("\r").split(":") for line in text.decode("latin-1").split("\n")[:-1]]
    flat = [field for fields in split for field in fields]
    values, forms = np.empty(len(flat), np.int64), np.empty(len(flat), np.uint8)
    line_end, line_field = np.empty(len(split), np.int64), np.zeros(len(split) + 1, np.int64)
    split_fields(np.frombuffer(bytearray(text), np.uint8), len(text), values, forms, line_end, line_field)
    assert [text[end : end + 1] for end in line_end] == [b"\n"] * len(split)
    assert np.diff(line_field).tolist() == [len(fields) for fields in split]
    signed = {form for field, form in zip(flat, forms.tolist(), strict=True) if re.fullmatch("-[0-9]{1,18}", field)}
    assert len(signed) <= 1
    for field, value, form in zip(flat, values.tolist(), forms.tolist(), strict=True):
        if not re.fullmatch("-?[0-9]+", field):
            assert form == NOT_INTEGER
        elif not -(2**63) <= int(field) < 2**63:
            assert form == OVERFLOW
        else:
            assert form not in (NOT_INTEGER, OVERFLOW)
            assert (form in signed) == field.startswith("-") or not signed
            assert value == int(field)
