"""Finds out which GPU a process means by an ordinal of CUDA: the one place that decides it.

A process numbers the devices that it sees, and nsys numbers the GPUs of the node. The first that a report contains
decides:

1. TARGET_INFO_CUDA_DEVICE (since schema 3.16.4) has the GPU of each ordinal of each process, by number or, where that
   is NULL (seen since 3.24.14), by uuid.
2. CUDA_VISIBLE_DEVICES of the captured environment has the device of each ordinal: a GPU by its ordinal without the
   variable or by the start of its uuid, or a MIG instance. As in CUDA, nothing after an invalid entry is visible.
3. TARGET_INFO_GPU.cuDevice is the ordinal of each GPU without the variable (seen to differ from nsys's number).

MIG instances work at the same time and share nothing, so each is a device of its own, with the number of its GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from nsys2prv_ng.report.export_settings import read_integer
from nsys2prv_ng.value_class import ValueClass


class Gpu(ValueClass):
    """GPU of a host, or a MIG instance: number of the GPU in nsys (or its key), name, uuid (empty if unknown)."""

    number: int
    name: str
    uuid: str


_FIRST_OTHER = 1 << 16
"""Keys from here on are of MIG instances and of GPUs that TARGET_INFO_GPU lacks: nsys's numbers have 8 bits."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MIG = "mig-"


def find_gpus(
    gpus: Iterable[tuple[Any, ...]], devices: Iterable[tuple[Any, ...]], visible: str | None
) -> tuple[dict[int, Gpu], dict[tuple[int, int], int], dict[int, int]]:
    """Return the devices of a report by key, the key of each ordinal of a process (pid, ordinal), and that of others.

    The key of a whole GPU is nsys's number. The last mapping, by ordinal alone, is for processes that the second lacks.
    `gpus`: id, cuDevice, name, uuid and bus location in each row of TARGET_INFO_GPU. `devices`: pid, cudaId, gpuId and
    uuid in each row of TARGET_INFO_CUDA_DEVICE. `visible`: CUDA_VISIBLE_DEVICES, None if it was not set.
    """
    finder = _Finder(gpus)
    of_device: dict[tuple[int, int], int] = {}
    of_ordinal = dict(finder.of_ordinal) if visible is None else {}
    entries = [] if visible is None else [entry.strip().lower() for entry in visible.split(",")]
    for ordinal, entry in enumerate(entries):
        key = finder.find_entry(entry, ordinal)
        if key is None:
            break
        of_ordinal[ordinal] = key
    for pid, ordinal, number, uuid in devices:
        # CUDA may name the GPU of an instance: then only the variable names the instance.
        entry = entries[ordinal] if 0 <= ordinal < len(entries) and entries[ordinal].startswith(_MIG) else ""
        key = finder.find_device(read_integer(number), str(uuid or "").lower(), entry, ordinal)
        if key is not None:
            of_device[pid, ordinal] = key
    return finder.known, of_device, of_ordinal


class _Finder:
    """The devices that are known so far, and those that names of devices mean."""

    def __init__(self, gpus: Iterable[tuple[Any, ...]]) -> None:
        self.known: dict[int, Gpu] = {}
        self.of_ordinal: dict[int, int] = {}
        self._of_uuid: dict[str, int] = {}
        self._others: dict[str, int] = {}
        for number, ordinal, name, uuid, bus in gpus:
            self.known[number] = Gpu(number, str(name or ""), str(uuid or bus or ""))
            if (of_cuda := read_integer(ordinal)) is not None:
                self.of_ordinal[of_cuda] = number
            if uuid:
                self._of_uuid[_strip(str(uuid).lower())] = number
        self._whole = tuple(self.known)
        self.of_ordinal = self.of_ordinal or {number: number for number in self._whole}

    def find_entry(self, entry: str, ordinal: int) -> int | None:
        """Return the key of the device that an entry of CUDA_VISIBLE_DEVICES names; None if it is not valid."""
        if re.fullmatch(r"[0-9]{1,4}", entry):
            number = int(entry)
            return self.of_ordinal.get(number, None if self.of_ordinal else number)
        if entry.startswith(_MIG):
            return self._find_instance(entry, None)
        return self._find_uuid(entry, ordinal) if entry.startswith("gpu-") else None

    def find_device(self, number: int | None, uuid: str, entry: str, ordinal: int) -> int | None:
        """Return the key of a device by the number of its GPU and its uuid; None if it has neither.

        `entry`: the MIG instance that CUDA_VISIBLE_DEVICES names for it, if any.
        """
        if number is not None and not 0 <= number < _FIRST_OTHER:
            number = None
        same = self._of_uuid.get(_strip(uuid))
        gpu = number if number is not None else same
        if uuid.startswith(_MIG) or entry:
            return self._find_instance(uuid if uuid.startswith(_MIG) else entry, gpu)
        if number is not None and same is None and number in self._of_uuid.values() and _UUID.fullmatch(_strip(uuid)):
            return self._find_instance(_MIG + _strip(uuid), number)
        if gpu is not None or not uuid:
            return gpu
        key = self._find_uuid(uuid, ordinal)
        is_other = key is None and _UUID.fullmatch(_strip(uuid))
        return self._add(_strip(uuid), None, "", _strip(uuid)) if is_other else key

    def _find_uuid(self, text: str, ordinal: int) -> int | None:
        """Return the key of the GPU whose uuid starts so; None if several do, or none of those that are known."""
        same = [number for uuid, number in self._of_uuid.items() if uuid.startswith(_strip(text))]
        if self._of_uuid:
            return same[0] if len(same) == 1 else None
        return self._add(_strip(text), ordinal, "", _strip(text))

    def _find_instance(self, uuid: str, gpu: int | None) -> int:
        """Return the key of a MIG instance. `gpu`: the number of its GPU, if it is known."""
        if gpu is None and uuid.startswith(f"{_MIG}gpu-"):  # up to driver 460: its GPU, instance and compute instance
            gpu = self._of_uuid.get(_strip(uuid.removeprefix(_MIG)).partition("/")[0])
        if gpu is None and len(self._whole) == 1:
            [gpu] = self._whole
        name = self.known[gpu].name if gpu in self.known else ""
        return self._add(uuid, gpu, f"{name} (MIG)".strip(), f"MIG-{uuid.removeprefix(_MIG)}")

    def _add(self, uuid: str, number: int | None, name: str, shown: str) -> int:
        key = self._others.setdefault(uuid, _FIRST_OTHER + len(self._others))
        if key not in self.known or len(name) > len(self.known[key].name):
            self.known[key] = Gpu(key if number is None else number, name, shown)
        return key


def _strip(uuid: str) -> str:
    """Return a uuid in lower case without its prefix, which some tables omit."""
    return uuid.removeprefix("gpu-")
