"""Which reports were captured on the same node, and so by the same clock."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.report.metadata import Metadata

SAME_BOOT_NS = 10**9
"""NVIDIA takes two reports for one target if their clocks' offsets differ by less than a second (User Guide)."""


def nodes_of(reports: Sequence[Metadata]) -> tuple[list[int], list[str]]:
    """(index of each report's node, names of the nodes).

    Reports are of one node if they agree in NSYS_HW_ID where it is set, else in the host name, and come from machines
    that booted at the same time, where the exports tell. Nodes are in the order of their first report; one that shares
    its host name with another is named `host (2)` and so on.
    """
    seen: list[Metadata] = []
    index = []
    for metadata in reports:
        found = next((i for i, other in enumerate(seen) if _same_node(metadata, other)), None)
        if found is None:
            found = len(seen)
            seen.append(metadata)
        index.append(found)
    names: list[str] = []
    for metadata in seen:
        same_name = sum(other.host == metadata.host for other in seen[: len(names)])
        names.append(f"{metadata.host} ({same_name + 1})" if same_name else metadata.host)
    return index, names


def _same_node(a: Metadata, b: Metadata) -> bool:
    hardware_a, hardware_b = a.environment.get("NSYS_HW_ID"), b.environment.get("NSYS_HW_ID")
    if hardware_a or hardware_b:
        return hardware_a == hardware_b
    if a.host != b.host:
        return False
    return a.boot_utc is None or b.boot_utc is None or abs(a.boot_utc - b.boot_utc) < SAME_BOOT_NS
