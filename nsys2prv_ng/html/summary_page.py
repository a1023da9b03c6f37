"""Renders the page of a summary."""

from __future__ import annotations

from nsys2prv_ng.html.blocks import Line, Lines, Section, Segment
from nsys2prv_ng.html.charts import Swatch
from nsys2prv_ng.html.colours import get_cell_css
from nsys2prv_ng.html.page import drop_quotes, render_page
from nsys2prv_ng.html.summary_sections import between_ranks, contents, over_time
from nsys2prv_ng.summary.answer.answer import describe_job, find_verdict
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.pictures.numbers import Pictures
from nsys2prv_ng.summary.text import BELOW, list_gpu_time
from nsys2prv_ng.summary.verdict import Statement
from nsys2prv_ng.text.formatting import count_noun, format_percent, join_first

_SECTIONS = {
    "efficiency": "efficiency", "waits.pipeline": "pipeline", "waits": "waits", "waits.links": "waits",
    "what_if": "what-if", "critical_path": "critical-path", "steps": "pace", "start_up": "pace", "slow_steps": "step",
    "gpus": "gaps", "kernels": "kernels", "slow_modes": "kernels", "memory": "memory",
    "memory_operations": "operations", "readbacks": "gaps", "skipped": "quality", "remedies": "try",
}  # fmt: skip
"""The section with the numbers of a statement, by the key of its evidence."""
_MOST_NAMES = 3
"""Most programs, and most Slurm jobs, that the title names."""


def render_summary(summary: JobSummary, pictures: Pictures) -> str:
    """Return the page of a summary. `pictures`: what `summary/pictures/measure.py` collected for the same job."""
    sections = list_sections(summary, pictures)
    return render_page(
        title=_make_title(summary),
        subtitle=describe_job(summary),
        lines=[*list_lines(summary, sections), *_draw_gpu_time(summary)],
        warnings=summary.warnings,
        sections=sections,
    )


def list_sections(summary: JobSummary, pictures: Pictures) -> list[Section]:
    """Return the sections that a job has anything to show in, in reading order: tables about the job come last."""
    maps = over_time.make_heat_map_section(pictures, next((part.key for part in list_gpu_time(summary)), ""))
    sections = [
        over_time.make_step_section(summary, pictures) or maps,
        over_time.make_pace_section(summary, pictures),
        contents.make_what_if_section(summary.what_if),
        contents.make_remedy_section(find_verdict(summary)),
        between_ranks.make_wait_section(summary),
        between_ranks.make_pipeline_section(summary),
        None if pictures.step is None else maps,
        between_ranks.make_gap_section(summary, pictures),
        contents.make_path_section(summary, pictures),
        contents.make_efficiency_section(summary, pictures),
        contents.make_range_section(summary),
        contents.make_kernel_section(summary),
        contents.make_operation_section(summary),
        over_time.make_memory_section(summary, pictures),
        contents.make_facts_section(summary, pictures),
        contents.make_quality_section(summary, pictures),
    ]
    found = [section for section in sections if section is not None]
    below = list_lines(summary, found, are_below=True)
    further = [Section("findings", "Further findings", "", [Lines(below)])] if below else []
    return [*found[:1], *further, *found[1:]]


def list_lines(summary: JobSummary, sections: list[Section], *, are_below: bool = False) -> list[Line]:
    """Return the lines of the answer that are above the bar of GPU time, or below it, each with its section."""
    statements = find_verdict(summary).statements
    return [_make_line(each, sections) for each in statements if (each.label in BELOW) is are_below]


def _make_line(statement: Statement, sections: list[Section]) -> Line:
    """Return a line with the section that it names, or else the first one with its numbers that the page contains."""
    titles = {section.title: section.key for section in sections}
    if statement.section in titles:
        key, link = titles[statement.section], statement.section
        return Line(statement.text, section=key, label=statement.label, link=link)
    named = [_SECTIONS[key] for key in statement.evidence if _SECTIONS.get(key) in titles.values()]
    return Line(statement.text, section=named[0] if named else "", label=statement.label)


def _draw_gpu_time(summary: JobSummary) -> list[Line]:
    """Return the line with the bar of GPU time, as the terminal has it; [] without GPUs."""
    parts, segments, swatches, left = list_gpu_time(summary), [], [], 0.0
    for part in parts:
        text, css = f"{part.label} {format_percent(part.share, 1)}", get_cell_css(part.key)
        segments.append(Segment(100 * left, 100 * part.share, css, text))
        swatches.append(Swatch(css, drop_quotes(", ".join(filter(None, (text, part.note))))))
        left += part.share
    return [Line("", label="GPU time", bar=segments, legend=swatches)] if parts else []


def _make_title(summary: JobSummary) -> str:
    """Return what ran, its Slurm job, its size and its day."""
    facts = summary.facts
    names = [] if facts is None else facts.scripts or facts.programs
    jobs = [] if facts is None else [f"{number}" for number in facts.slurm_jobs]
    size = count_noun(len(summary.gpus), "GPU") if summary.gpus else count_noun(summary.tasks, "task")
    slurm = [f"Slurm job {join_first(jobs, _MOST_NAMES)}"] if jobs else []
    about = [*slurm, f"{size} on {count_noun(summary.nodes, 'node')}", summary.start_utc[:10]]
    return f"{join_first(names, _MOST_NAMES) or 'Job'}: {', '.join(about)}"
