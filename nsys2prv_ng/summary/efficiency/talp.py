"""Writes the efficiencies of a job for TALP-Pages, in the form in which DLB's TALP writes its measurements.

TALP-Pages 3.8 reads these keys and this layout from files of DLB 3.8. Times are ns, and rates are from 0 to 1. A rate
that does not apply to a region is 0, and NCCL is useful, both as in TALP. Reports do not contain TALP's counters:
`cycles` and `instructions` are the useful time instead. Its ratio between runs is POP's computation scalability.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.runtime.files import read_input, write_atomically
from nsys2prv_ng.summary.efficiency import numbers
from nsys2prv_ng.version import __version__

GLOBAL, STEPS = "Global", "steps"
"""Names of the regions for the whole window, and for the steps after the warm-up."""
_LAYOUT = "3.8"
_UNSAFE = re.compile(r"[^\w .,:;/+=#@()\[\]-]")
"""Characters that a region name must not contain: TALP-Pages puts the name into HTML as it is."""
_LONGEST_NAME = 100
_FIRST, _LAST = 0, 4102444800 * 10**9
"""Limits (UTC, ns) of a plausible start of a run: 1970 to 2100."""

_NO_HOST = numbers.HostEfficiency(**{rate.name: 0.0 for rate in fields(numbers.HostEfficiency)})
_NO_DEVICE = numbers.DeviceEfficiency(**{rate.name: 0.0 for rate in fields(numbers.DeviceEfficiency)})
"""Efficiencies of a region without main threads, and of one without GPUs."""


def write_talp(efficiency: numbers.EfficiencyNumbers | None, start_utc_ns: int, folder: str | Path) -> Path:
    """Write a file with the efficiencies of a job into a folder; create the folder if needed; return the path.

    `start_utc_ns`: UTC at which the run started. The file name contains this time and the numbers of processes and
    GPUs, so that runs do not replace each other. An existing file with the same numbers stays as it is, with the
    metadata that `talp metadata` added to it. Raises TranslationError if an existing file has other numbers, if nothing
    can be written, or if the job has no efficiencies.
    """
    if efficiency is None or not efficiency.length_ns:
        raise TranslationError("no efficiencies for TALP-Pages: the reports show neither GPUs nor main threads at work")
    document = make_document(efficiency, start_utc_ns)
    resources = document["resources"]
    start = _find_start(start_utc_ns)
    stamp = f"{start:%Y%m%dT%H%M%S}.{start_utc_ns % 10**9:09d}Z" if start else "unknown-time"
    file = Path(folder) / f"{resources['numMpiRanks']}-processes-{resources['numGpus']}-gpus-{stamp}.json"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        kept = read_input(file).decode() if file.exists() else ""
    except FileExistsError:
        raise TranslationError(f"{folder}: is not a folder; choose another name") from None
    except (OSError, ValueError) as error:
        raise TranslationError(f"{file}: cannot be used: {getattr(error, 'strerror', None) or error}") from None
    if not kept:
        write_atomically(file, json.dumps(document, indent=2) + "\n")
    elif not _has_same_numbers(kept, document):
        raise TranslationError(
            f"{file}: has other numbers of this run, as of another time or version; remove it or choose another folder"
        )
    return file


def _has_same_numbers(kept: str, document: dict[str, Any]) -> bool:
    """Return whether the text of a file contains the numbers of a document."""
    try:
        other = json.loads(kept)
    except (ValueError, RecursionError):
        return False
    return isinstance(other, dict) and all(other.get(key) == document[key] for key in ("resources", "Application"))


def make_document(efficiency: numbers.EfficiencyNumbers, start_utc_ns: int) -> dict[str, Any]:
    """Return the content of a TALP file for a job with these efficiencies."""
    windows: dict[str, numbers.WindowEfficiency] = {GLOBAL: efficiency}
    if efficiency.in_steps is not None:
        windows[STEPS] = efficiency.in_steps
    windows |= _name_ranges(efficiency.ranges)
    regions = {name: _describe(window) for name, window in windows.items() if window.length_ns}
    start = _find_start(start_utc_ns)
    return {
        "dlbVersion": _LAYOUT,
        "generator": f"nsys2prv-ng {__version__}",
        # Without a time zone, like the commit times that `talp metadata` adds: TALP-Pages cannot sort a mix of both.
        **({"timestamp": start.isoformat(timespec="microseconds")} if start else {}),
        "resources": {key: regions[GLOBAL][key] for key in ("numCpus", "numMpiRanks", "numGpus")},
        "Application": regions,
    }


def check_folder(folder: str | Path) -> None:
    """Raise TranslationError for a path that cannot be a folder. Call this before long work."""
    path = next(filter(Path.exists, (Path(folder), *Path(folder).parents)), None)
    if path is not None and not path.is_dir():
        raise TranslationError(f"{path}: is not a folder; choose another name")


def _find_start(utc: int) -> datetime | None:
    """Return when a run started; None if the time (UTC, ns) is damaged and beyond all runs."""
    return datetime(1970, 1, 1) + timedelta(microseconds=utc // 1000) if _FIRST < utc < _LAST else None


def _describe(window: numbers.WindowEfficiency) -> dict[str, Any]:
    """Return the keys of a region. Each process counts as an MPI rank with one CPU, its main thread."""
    trees, devices = window.nccl_as_useful, 0 if window.losses is None else window.losses.devices
    host = trees.host or _NO_HOST
    device = trees.device or _NO_DEVICE
    useful = round(host.parallel * window.threads * window.length_ns)
    processes = window.threads or 1  # TALP-Pages divides by it
    return {
        "numCpus": processes,
        "numMpiRanks": processes,
        "numGpus": devices,
        "cycles": useful,
        "instructions": useful,
        "elapsedTime": window.length_ns,
        "usefulTime": useful,
        "parallelEfficiency": host.parallel,
        "mpiParallelEfficiency": host.mpi_parallel,
        "mpiCommunicationEfficiency": host.mpi_communication,
        "mpiLoadBalance": host.mpi_load_balance,
        "mpiLoadBalanceIn": host.mpi_balance_in_nodes,
        "mpiLoadBalanceOut": host.mpi_balance_of_nodes,
        "deviceOffloadEfficiency": host.offload,
        "gpuParallelEfficiency": device.parallel,
        "gpuLoadBalance": device.load_balance,
        "gpuCommunicationEfficiency": device.communication,
        "gpuOrchestrationEfficiency": device.orchestration,
    }


def _name_ranges(ranges: Sequence[numbers.RangeEfficiency]) -> dict[str, numbers.RangeEfficiency]:
    """Return ranges by distinct names that are safe in HTML. Equal names get numbers, by domain and full name."""
    named: dict[str, numbers.RangeEfficiency] = {}
    for window in sorted(ranges, key=lambda each: (each.domain, each.name)):
        full = f"{window.domain}:{window.name}" if window.domain else window.name
        safe = _UNSAFE.sub("_", full)[:_LONGEST_NAME].strip() or "_"
        name, number = safe, 1
        while name in named or name in (GLOBAL, STEPS):
            number += 1
            name = f"{safe} ({number})"
        named[name] = window
    return named
