"""Reads texts that are in the rows of a table, or that the rows name by an id."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.report.database import NULL, Columns
from nsys2prv_ng.sources.shared.report_reader import ReportReader


def read_texts(reader: ReportReader, columns: Columns, rows: IntArray, inline: str, by_id: str) -> pa.Array:
    """Return the text of each of n rows: in the column `inline`, else the text with the id in `by_id`, else null."""
    text = columns.texts[inline].combine_chunks().take(pa.array(rows, pa.int64()))
    if (columns[by_id][rows] == NULL).all():
        return text
    ids, position = np.unique(columns[by_id][rows], return_inverse=True)
    names = [None if i == NULL else name for i, name in zip(ids, reader.strings(ids), strict=True)]
    return pc.coalesce(text, pa.array(names, pa.string()).take(pa.array(position)))


def encode_texts(texts: pa.Array) -> tuple[IntArray, list[Any]]:
    """Return (index of each of n texts or blobs into the distinct ones, -1 for a null; distinct ones)."""
    encoded = texts.dictionary_encode()
    return encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.to_pylist()


def parse_json(text: str | None) -> dict[str, object] | None:
    """Return the members of a JSON object; None for any other text."""
    try:
        parsed = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None
