"""Other layouts hold what the program reads: a table that it refuses is copied as it is."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.report.table_folder import TableFolder
from tests.damage_layouts import write_folder_layout


@pytest.mark.parametrize("more", [b"", bytes(8), bytes(100)], ids=["sound", "a word", "grown"])
def test_copies_streams_with_more_behind_their_end(tmp_path: Path, more: bytes) -> None:
    folder = tmp_path / "report_arwdir"
    folder.mkdir()
    table = pa.table({"start": [1, 2, 3]})
    with pa.ipc.new_stream(folder / "TABLE.arrow", table.schema) as writer:
        writer.write_table(table)
    file = folder / "TABLE.arrow"
    file.write_bytes(file.read_bytes() + more)
    done = write_folder_layout(folder, tmp_path / "copy", random.Random(1))
    assert done.endswith("0 files" if more else "1 files")
    if more:
        with pytest.raises(ReportError):
            TableFolder(folder).list_columns("TABLE")
        assert (tmp_path / "copy/TABLE.arrow").read_bytes() == file.read_bytes()
