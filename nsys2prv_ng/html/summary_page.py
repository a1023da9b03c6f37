"""Renders the page of a summary."""

from __future__ import annotations

from nsys2prv_ng.html.blocks import Line, Section
from nsys2prv_ng.html.page import render_page
from nsys2prv_ng.html.summary_sections import between_ranks, contents, over_time
from nsys2prv_ng.summary.answer.answer import find_verdict
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.pictures.numbers import Pictures
from nsys2prv_ng.text.formatting import count_noun, count_nouns, format_time, join_first

_SECTIONS = {
    "efficiency": "efficiency", "waits.pipeline": "pipeline", "waits.links": "links", "waits": "waits",
    "what_if": "what-if", "critical_path": "critical-path", "steps": "pace", "start_up": "pace", "slow_steps": "step",
    "gpus": "gaps", "kernels": "kernels", "slow_modes": "kernels", "memory": "memory",
    "memory_operations": "operations", "readbacks": "gaps", "skipped": "quality", "remedies": "try",
}  # fmt: skip
"""The section with the numbers of a statement, by the key of its evidence."""
_MOST_PROGRAMS = 3


def render_summary(summary: JobSummary, pictures: Pictures) -> str:
    """Return the page of a summary. `pictures`: what `summary/pictures/measure.py` collected for the same job."""
    sections = list_sections(summary, pictures)
    return render_page(
        title=_make_title(summary),
        subtitle=_describe_job(summary),
        lines=list_lines(summary, sections),
        warnings=summary.warnings,
        sections=sections,
    )


def list_sections(summary: JobSummary, pictures: Pictures) -> list[Section]:
    """Return the sections that a job has anything to show in, in reading order."""
    sections = [
        contents.make_facts_section(summary, pictures),
        over_time.make_pace_section(summary, pictures),
        over_time.make_heat_map_section(pictures),
        over_time.make_step_section(summary, pictures),
        contents.make_path_section(summary, pictures),
        contents.make_remedy_section(find_verdict(summary)),
        contents.make_what_if_section(summary.what_if),
        contents.make_efficiency_section(summary, pictures),
        between_ranks.make_wait_section(summary),
        between_ranks.make_pipeline_section(summary),
        between_ranks.make_gap_section(summary, pictures),
        contents.make_kernel_section(summary),
        contents.make_range_section(summary),
        contents.make_operation_section(summary),
        between_ranks.make_bandwidth_section(summary),
        between_ranks.make_link_section(summary),
        over_time.make_memory_section(summary, pictures),
        contents.make_quality_section(summary, pictures),
    ]
    return [section for section in sections if section is not None]


def list_lines(summary: JobSummary, sections: list[Section]) -> list[Line]:
    """Return the lines of the verdict, each with the first section with its numbers that the page contains."""
    known = {section.key for section in sections}
    verdict = find_verdict(summary)
    lines = []
    for statement in verdict.statements:
        named = [_SECTIONS[key] for key in statement.evidence if _SECTIONS.get(key) in known]
        lines.append(Line(statement.text, section=named[0] if named else "", label=statement.label))
    return lines


def _make_title(summary: JobSummary) -> str:
    programs = summary.facts.programs if summary.facts is not None else []
    size = count_noun(len(summary.gpus), "GPU") if summary.gpus else count_noun(summary.tasks, "task")
    return f"{join_first(programs, _MOST_PROGRAMS) or 'Job'} on {size}"


def _describe_job(summary: JobSummary) -> str:
    users = {"rank": summary.ranks} if summary.ranks else {"task": summary.tasks}
    numbers = {**users, "node": summary.nodes, "report": summary.reports}
    return f"{count_nouns(numbers)}: {format_time(summary.duration_ns)} from {summary.start_utc[:19]}Z"
