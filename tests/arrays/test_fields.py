"""Columns that become fields of records, and come back."""

from __future__ import annotations

import numpy as np
import pytest

from nsys2prv_ng.arrays.fields import fill_fields, take_fields
from nsys2prv_ng.runtime.annotations import make_records


@pytest.mark.parametrize("size", [0, 1, 4096, 10_000])
def test_fields_are_columns(size: int) -> None:
    records = make_records(size, ["a", "b", "c"])
    a, b, c = np.random.default_rng(1).integers(-9, 9, (3, size))
    fill_fields(records, {"c": c, "a": a})
    fill_fields(records[size // 3 :], {"b": b[size // 3 :].astype(np.int32)})
    fill_fields(records[: size // 3], {"b": b[: size // 3]})
    assert records.tolist() == list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))
    columns = take_fields(records)
    assert columns.tolist() == [a.tolist(), b.tolist(), c.tolist()]
    assert all(column.flags.c_contiguous for column in columns)
