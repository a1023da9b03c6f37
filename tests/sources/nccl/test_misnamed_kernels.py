"""Kernels that reduce, gather or broadcast under the name SendRecv, as NCCL 2.12 to 2.14 names them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import nsys2prv_ng
from nsys2prv_ng.sources.nccl.kernels import FUNCTIONS, NO_FUNCTION, correct_functions, find_called

ALL_REDUCE, SEND_RECEIVE = FUNCTIONS.index("AllReduce"), FUNCTIONS.index("SendRecv")


def write(samples: Path, folder: Path, statements: Sequence[str]) -> list[Path]:
    """Write the reports of a sample after SQL statements."""
    folder.mkdir()
    paths = []
    for report in sorted(samples.glob("ddp-2x2.*.sqlite")):
        paths.append(folder / report.name)
        paths[-1].write_bytes(report.read_bytes())
        with closing(sqlite3.connect(paths[-1])) as database, database:
            for statement in statements:
                database.execute(statement)
    return paths


NEW = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"
RENAME = f"UPDATE StringIds SET value = '{NEW}' WHERE value LIKE 'ncclDevKernel%'"
NO_PAYLOAD = "UPDATE NVTX_EVENTS SET jsonText = NULL, binaryData = NULL WHERE domainId = 1"


@pytest.mark.slow
@pytest.mark.parametrize("payload", [[], [NO_PAYLOAD]])
def test_the_call_around_the_launch_names_the_function(samples, tmp_path, payload):
    """Sends and receives are what they are, and all numbers of NCCL are those of the sample."""
    renamed, expected = (
        nsys2prv_ng.summarize(write(samples, tmp_path / name, statements))
        for name, statements in (("renamed", [RENAME, *payload]), ("as_is", payload))
    )
    assert {row.function for row in expected.nccl} >= {"AllReduce"}
    assert renamed.nccl == expected.nccl
    assert repr(renamed.waits).replace(NEW, "ncclDevKernel_AllReduce_Sum_f32_RING_LL") == repr(expected.waits)


def test_a_group_of_several_functions_names_none():
    calls = [ALL_REDUCE, NO_FUNCTION, NO_FUNCTION, SEND_RECEIVE, ALL_REDUCE, SEND_RECEIVE, SEND_RECEIVE]
    called = find_called(*map(np.array, (calls, [0, 0, 1, 2, 2, 3, 3])))
    assert called.tolist() == [ALL_REDUCE] * 2 + [NO_FUNCTION] * 3 + [SEND_RECEIVE] * 2
    named = np.array([SEND_RECEIVE, SEND_RECEIVE, ALL_REDUCE, NO_FUNCTION])
    called = np.array([ALL_REDUCE, NO_FUNCTION, SEND_RECEIVE, ALL_REDUCE])
    assert correct_functions(named, called).tolist() == [ALL_REDUCE, SEND_RECEIVE, ALL_REDUCE, NO_FUNCTION]
