"""Finds the reports that were captured on the same node, and so have the same clock."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import combinations

from nsys2prv_ng.report.metadata import PID_MASK, Metadata

SAME_BOOT_NS = 10**9
"""NVIDIA treats two reports as one target if the offsets of their clocks differ by less than a second (User Guide)."""


def assign_nodes(reports: Sequence[Metadata]) -> tuple[list[int], list[str]]:
    """Return the index of each report's node, and the names of the nodes.

    Reports belong to one node if they agree in NSYS_HW_ID, and their exports have times of one clock and say when they
    were captured. If neither has NSYS_HW_ID, their host names must agree, and so must the times at which the machines
    booted, if both exports record them. Nodes are in the order of their first report. A node that shares its host name
    with an earlier one is named `host (2)`, and so on.
    """
    index, seen = _group_by_node(reports)
    names: list[str] = []
    for metadata in seen:
        same_name = sum(other.host == metadata.host for other in seen[: len(names)])
        names.append(f"{metadata.host} ({same_name + 1})" if same_name else metadata.host)
    return index, names


def _are_on_one_node(a: Metadata, b: Metadata) -> bool:
    return a.clock == b.clock and None not in (a.utc_of_zero, b.utc_of_zero) and _are_on_one_machine(a, b)


def _are_on_one_machine(a: Metadata, b: Metadata) -> bool:
    hardware_a, hardware_b = a.environment.get("NSYS_HW_ID"), b.environment.get("NSYS_HW_ID")
    if hardware_a or hardware_b:
        return hardware_a == hardware_b
    if a.host != b.host:
        return False
    return a.boot_utc is None or b.boot_utc is None or abs(a.boot_utc - b.boot_utc) < SAME_BOOT_NS


_GENERIC = re.compile(r"(?i)localhost(\..*)?|(.*[-_.])?vm([-_.]?\d+)?|modal|unknown host|\(none\)|debian|ubuntu")


def find_mixed_hosts(reports: Sequence[Metadata]) -> list[str]:
    """Return a warning for each machine whose exports have times of several clocks: it is shown as several nodes."""
    if len({metadata.clock for metadata in reports}) < 2:
        return []
    mixed = {a.host for a, b in combinations(_group_by_node(reports)[1], 2) if _are_on_one_machine(a, b)}
    return [
        f"exports of host {host} have times of different clocks, some with --ts-normalize=true: it is shown as several"
        " nodes; export all of its reports alike"
        for host in sorted(mixed)
    ]


def _group_by_node(reports: Sequence[Metadata]) -> tuple[list[int], list[Metadata]]:
    """Return the index of each report's node, and the first report of each node."""
    first: list[Metadata] = []
    index = []
    for metadata in reports:
        node = next((i for i, other in enumerate(first) if _are_on_one_node(metadata, other)), len(first))
        if node == len(first):
            first.append(metadata)
        index.append(node)
    return index, first


def read_utc(reports: Sequence[Metadata], nodes: Sequence[int]) -> list[int | None]:
    """Return the UTC (ns) of time 0 of each report; None if it is not known. `nodes`: the node of each report.

    UTC is set while a machine runs, the time since its boot is not. So if reports of a node have both, their distance
    is that since the boot, as for the captures that one process makes in turn.
    """
    first: dict[int, int] = {}
    utc = []
    for metadata, node in zip(reports, nodes, strict=True):
        boot = metadata.boot_utc
        moved = 0 if boot is None else first.setdefault(node, boot) - boot
        utc.append(None if metadata.utc_of_zero is None else metadata.utc_of_zero + moved)
    return utc


def find_doubtful_hosts(reports: Sequence[Metadata], processes: Sequence[Collection[int]]) -> list[str]:
    """Return warnings for host names that several machines may share: generic names, if two reports have the same pid.

    `processes`: keys of the processes with events, for each report. Two reports that do not overlap in time may well
    come from the same process.
    """
    seen: dict[tuple[str, int], list[Metadata]] = {}
    doubtful = set()
    for metadata, report_processes in zip(reports, processes, strict=True):
        if not _GENERIC.fullmatch(metadata.host) or metadata.environment.get("NSYS_HW_ID"):
            continue
        for process in report_processes:
            same = seen.setdefault((metadata.host, process & PID_MASK), [])
            if any(_do_overlap(metadata, other) and _are_on_one_node(metadata, other) for other in same):
                doubtful.add(metadata.host)
            same.append(metadata)
    return [
        f"reports of host {host} have the same process ids at the same time: if they are of several machines, set"
        " NSYS_HW_ID on each, or their clocks are treated as one"
        for host in sorted(doubtful)
    ]


def _do_overlap(a: Metadata, b: Metadata) -> bool:
    if a.utc_of_zero is None or b.utc_of_zero is None:
        return True
    return a.utc_of_zero < b.utc_of_zero + b.duration and b.utc_of_zero < a.utc_of_zero + a.duration
