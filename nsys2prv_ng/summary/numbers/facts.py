"""Facts about the reports of a job, which decide what it can be compared with."""

from __future__ import annotations

from nsys2prv_ng.light_dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """What the reports of a job are and contain. All but `graphs` describe all reports, whatever the user chose."""

    nsys_versions: list[str]
    """The versions that exported the reports."""
    schema_versions: list[str]
    programs: list[str]
    """Names of the executables of the tasks, without their folders."""
    sources: dict[str, int]
    """The number of reports with events of a source, by source."""
    graphs: list[str]
    """How CUDA graphs were traced, "by node" and "as a whole"; empty if the chosen reports and time show no graphs."""
    lost_data_messages: int
    """Messages in which nsys reports for certain that data is missing."""
    lacks_ranks: bool
    """Whether some rank of the job has no report."""
    captures: list[str]
    """A fingerprint of each capture: the same for all exports of one."""
    begin_utc_ns: int | None = None
    """UTC of the first event of the chosen ranks, whatever time the user chose; None in summaries of older versions."""
