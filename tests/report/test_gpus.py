"""Which GPU a process means by an ordinal: what reports of each age have for it, and what CUDA says of its variable."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from nsys2prv_ng.report.gpus import find_gpus
from nsys2prv_ng.report.metadata import Metadata
from tests.report.test_metadata import metadata_of
from tests.sources.small_reports import export

UUIDS = [f"{number}a000000-1111-2222-3333-444444444444" for number in range(4)]
INSTANCE = "MIG-9b000000-1111-2222-3333-444444444444"
GPU_COLUMNS = ("id", "cuDevice", "name", "uuid", "busLocation")
DEVICE_COLUMNS = ("gpuId", "cudaId", "pid", "uuid")
IN_ORDER = tuple((n, n, "NVIDIA H200", UUIDS[n], f"0000:0{n}:00.0") for n in range(4))
REVERSED = tuple((n, 3 - n, "NVIDIA H200", UUIDS[n], "") for n in range(4))
NO_ORDINALS = tuple((n, None, "NVIDIA H200", UUIDS[n], "") for n in range(4))
PID = 77


def read(path: Path, gpus=IN_ORDER, devices=(), visible=None) -> Metadata:
    """The metadata of a report with these rows, and this value of CUDA_VISIBLE_DEVICES."""
    variables = [] if visible is None else [("PROCESS_0:ENVIRONMENT_VARIABLE", f'CUDA_VISIBLE_DEVICES="{visible}"')]
    tables = {
        "META_DATA_CAPTURE": (("name", "value"), variables),
        **({"TARGET_INFO_GPU": (GPU_COLUMNS, gpus)} if gpus else {}),
        **({"TARGET_INFO_CUDA_DEVICE": (DEVICE_COLUMNS, devices)} if devices else {}),
    }
    return metadata_of(export(path, [], tables))


@pytest.mark.parametrize(
    ("gpus", "devices", "visible", "ordinal", "number"),
    [
        # The table decides, whatever else there is.
        (IN_ORDER, [(2, 0, PID, None)], "3", 0, 2),
        (REVERSED, [(0, 0, PID, UUIDS[0])], None, 0, 0),
        (IN_ORDER, [(None, 0, PID, UUIDS[3])], None, 0, 3),
        (IN_ORDER, [(None, 0, PID, f"GPU-{UUIDS[3].upper()}")], None, 0, 3),
        # It has another process only.
        (IN_ORDER, [(2, 0, PID + 1, None)], "3", 0, 3),
        (IN_ORDER, [(None, 0, PID, None)], "1", 0, 1),
        # Ordinals without the variable.
        (REVERSED, [], None, 0, 3),
        (REVERSED, [], None, 2, 1),
        (NO_ORDINALS, [], None, 2, 2),
        ((), [], None, 2, 2),
        # Ordinals with the variable are among those without it.
        (IN_ORDER, [], "2,3", 0, 2),
        (IN_ORDER, [], "2, 3", 1, 3),
        (REVERSED, [], "0,1,2,3", 0, 3),
        (REVERSED, [], "2,3", 1, 0),
        (NO_ORDINALS, [], "2,3", 1, 3),
        ((), [], "2,3", 1, 3),
        # Starts of uuids, as long as one GPU has them.
        (IN_ORDER, [], f"GPU-{UUIDS[3]},GPU-1a", 0, 3),
        (IN_ORDER, [], f"GPU-{UUIDS[3]},GPU-1A", 1, 1),
        # What CUDA does not see: the process must have another value of the variable.
        (IN_ORDER, [], "2", 1, 1),
        (IN_ORDER, [], "", 1, 1),
        (IN_ORDER, [], "2,-1,3", 2, 2),
        (IN_ORDER, [], "2,9,0", 2, 2),
        (IN_ORDER, [], "2,GPU-,3", 2, 2),
    ],
)
def test_number_of_the_gpu(tmp_path, gpus, devices, visible, ordinal, number):
    gpu = read(tmp_path / "a.sqlite", gpus, devices, visible).gpu(PID, ordinal)
    name, uuid = ("NVIDIA H200", UUIDS[number]) if gpus else ("", "")
    assert (gpu.number, gpu.name, gpu.uuid) == (number, name, uuid)


UNKNOWN = 1 << 16
"""The number of a GPU that nothing shows."""
OLD_INSTANCES = f"MIG-GPU-{UUIDS[2]}/1/0"
"""The name of an instance up to driver 460: its GPU, its GPU instance, its compute instance."""


@pytest.mark.parametrize(
    ("gpus", "devices", "visible", "number", "uuid"),
    [
        (IN_ORDER, [(2, 0, PID, INSTANCE)], None, 2, INSTANCE),
        (IN_ORDER, [(2, 0, PID, INSTANCE.removeprefix("MIG-"))], None, 2, INSTANCE),
        (IN_ORDER, [(2, 0, PID, UUIDS[2])], INSTANCE, 2, INSTANCE),
        (IN_ORDER, [(2, 0, PID, None)], INSTANCE, 2, INSTANCE),
        (IN_ORDER, [(None, 0, PID, UUIDS[2])], INSTANCE, 2, INSTANCE),
        (IN_ORDER, [], OLD_INSTANCES, 2, OLD_INSTANCES),
        (IN_ORDER[1:2], [], INSTANCE, 1, INSTANCE),
        (IN_ORDER, [], INSTANCE, UNKNOWN, INSTANCE),
        ((), [], INSTANCE, UNKNOWN, INSTANCE),
    ],
)
def test_instances_are_devices_of_their_own(tmp_path, gpus, devices, visible, number, uuid):
    metadata = read(tmp_path / "a.sqlite", gpus, devices, visible)
    gpu = metadata.gpu(PID, 0)
    assert (gpu.number, gpu.uuid.lower()) == (number, uuid.lower())
    assert gpu.name.endswith("(MIG)")
    # GPU metrics are of the GPU, which stays what it is.
    whole = [metadata.get_gpu(n) for n in range(4)]
    assert [(each.number, each.uuid) for each in whole] == [
        (n, UUIDS[n] if any(row[0] == n for row in gpus) else "") for n in range(4)
    ]


def test_unknown_uuids_are_told_apart(tmp_path):
    """A report without TARGET_INFO_GPU: two ranks of one node on two GPUs are not on one."""
    reports = [read(tmp_path / f"{n}.sqlite", (), [(None, 0, PID, UUIDS[n])]) for n in range(2)]
    assert [report.gpu(PID, 0).uuid for report in reports] == UUIDS[:2]


def test_uuids_that_the_table_of_gpus_lacks(tmp_path):
    """Neither is a GPU that the table has, and they are two."""
    others = [uuid.replace("a0", "b0") for uuid in UUIDS[:2]]
    devices = [(None, 0, PID, others[0]), (None, 0, PID + 1, others[1]), (None, 0, PID + 2, UUIDS[0])]
    metadata = read(tmp_path / "a.sqlite", IN_ORDER[:2], devices)
    assert [metadata.gpu(PID + n, 0).uuid for n in range(3)] == [*others, UUIDS[0]]
    assert [metadata.gpu(PID + n, 0).number for n in range(3)] == [UNKNOWN, UNKNOWN + 1, 0]


def test_two_instances_of_the_only_gpu(tmp_path):
    metadata = read(tmp_path / "a.sqlite", IN_ORDER[1:2], [], f"{INSTANCE},{INSTANCE.replace('b', 'c')}")
    assert [metadata.gpu(PID, n).number for n in range(2)] == [1, 1]
    assert metadata.find_gpu(PID, 0) != metadata.find_gpu(PID, 1)


@pytest.mark.parametrize("gpus", [IN_ORDER[:2], NO_ORDINALS[:2], REVERSED[2:]])
@pytest.mark.parametrize(
    ("visible", "ordinals"),
    [(None, [0, 1]), ("", []), ("0,7,1", [0]), ("7,0", []), ("1,-1,0", [1]), ("1,0", [1, 0]), ("1,GPU-zz,0", [1])],
)
def test_nothing_after_an_invalid_entry_is_visible(gpus, visible, ordinals):
    """As CUDA_VISIBLE_DEVICES is documented in the CUDA programming guide."""
    of_cuda = {row[0] if row[1] is None else row[1]: row[0] for row in gpus}
    assert find_gpus(gpus, [], visible)[2] == {n: of_cuda[ordinal] for n, ordinal in enumerate(ordinals)}


@pytest.mark.parametrize("values", list(itertools.product([None, "", "x", -1, 2**62, 1.5], repeat=2)))
def test_damaged_values(tmp_path, values):
    """Nothing that a report says of its GPUs ends in a traceback."""
    number, ordinal = values
    gpus = [(0, ordinal, None, number, None), *IN_ORDER[1:]]
    metadata = read(tmp_path / "a.sqlite", gpus, [(number, 0, PID, ordinal)], "0,MIG-,\x1b,GPU-zz")
    assert metadata.gpu(PID, 0).number in range(4)
    assert all(metadata.gpu(PID, other).number == other for other in range(5, 9))
