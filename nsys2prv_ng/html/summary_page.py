"""The page of a summary."""

from __future__ import annotations

from collections.abc import Callable

from nsys2prv_ng.html.blocks import Line, Section
from nsys2prv_ng.html.page import render_page
from nsys2prv_ng.html.summary_sections import over_time
from nsys2prv_ng.summary.model import JobSummary
from nsys2prv_ng.summary.pictures_model import Pictures
from nsys2prv_ng.text.formatting import count_noun, format_time

_DRAWN: tuple[Callable[[Pictures], Section | None], ...] = (
    over_time.make_pace_section,
    over_time.make_heat_map_section,
    over_time.make_step_section,
    over_time.make_memory_section,
)


def render_summary(summary: JobSummary, pictures: Pictures) -> str:
    """Return the page of a summary, with what `summary/pictures.py` collected of the same job."""
    sections = [section for make in _DRAWN if (section := make(pictures)) is not None]
    lines: list[Line] = []
    return render_page(
        "page.html.j2",
        title=_make_title(summary),
        subtitle=_describe_job(summary),
        lines=lines,
        warnings=summary.warnings,
        sections=sections,
    )


def _make_title(summary: JobSummary) -> str:
    programs = summary.facts.programs if summary.facts is not None else []
    return f"{', '.join(programs[:3]) or 'Job'} on {count_noun(len(summary.gpus), 'GPU')}"


def _describe_job(summary: JobSummary) -> str:
    counts = [
        count_noun(summary.ranks, "rank"),
        count_noun(summary.nodes, "node"),
        count_noun(summary.reports, "report"),
    ]
    return f"{', '.join(counts)}: {format_time(summary.duration_ns)} from {summary.start_utc[:19]}Z"
