"""Facts on the reports of a job that decide with what it can be compared."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """What the reports of a job are and hold. All but `graphs` is of all of them, whatever the user chose."""

    nsys_versions: list[str]
    """Those that made the exports."""
    schema_versions: list[str]
    programs: list[str]
    """Names of the executables of the tasks, without their folders."""
    sources: dict[str, int]
    """By source with any event: the number of reports that have one."""
    graphs: list[str]
    """How CUDA graphs were traced, "by node" and "as a whole"; empty where the chosen reports and time show none."""
    lost_data_messages: int
    """Messages of nsys that data is missing for certain."""
    lacks_ranks: bool
    """Whether some rank of the job has no report."""
    captures: list[str]
    """A fingerprint of each capture: the same for all exports of one."""
    begin_utc_ns: int | None = None
    """UTC of the first event of the chosen ranks, whatever time the user chose; None if older versions did not say."""
