"""The section on device memory."""

from __future__ import annotations

from dataclasses import replace

from nsys2prv_ng.html.blocks import Chart, Paragraph, Table
from nsys2prv_ng.html.summary_page import list_lines, list_sections, render_summary
from nsys2prv_ng.summary.answer.answer import answer
from nsys2prv_ng.summary.memory.numbers import KeptMemory
from nsys2prv_ng.summary.verdict import Verdict
from tests.html.made import Job, Page, job_of

STEPS = 30


def make_job(gpus: int) -> Job:
    """A job whose GPUs leak, each more than the one before."""
    summary, pictures = job_of("ddp-2x2")
    assert summary.memory is not None
    kept = [
        KeptMemory(range="loss <b>", call="cudaMalloc", count=3, bytes=75),
        KeptMemory(range="", call="", count=1, bytes=25),
    ]
    leaks = [
        replace(
            summary.memory.gpus[0],
            gpu=n,
            ranks=[n],
            steps=STEPS,
            growth_per_step=n * 10**6,
            leak=n > 0,
            least_by_step=[10**9 + n * step * 10**6 for step in range(STEPS)],
            kept=kept,
        )
        for n in range(gpus)
    ]
    memory = replace(summary.memory, steps=STEPS, step_numbers=list(range(5, 5 + STEPS)), gpus=leaks)
    summary = replace(summary, memory=memory, verdict=Verdict.make_unjudged())
    return Job(replace(summary, verdict=answer(summary)), pictures)


def test_leaks_come_first_and_lines_are_of_those_that_grow_most() -> None:
    job = make_job(12)
    sections = list_sections(*job)
    [section] = [section for section in sections if section.key == "memory"]
    paragraphs = [block.text for block in section.blocks if isinstance(block, Paragraph)]
    assert [text.split(",")[0].split(";")[0] for text in paragraphs[:2]] == [
        "rank 11: device memory in use grows by 11.0 MB a step",
        "rank 10: device memory in use grows by 10.0 MB a step",
    ]
    assert "75.0% of what stays was allocated in `loss <b>`, by `cudaMalloc`." in paragraphs[0]
    assert paragraphs[-1] == "Memory of 7 more GPUs grows as well."
    [chart] = [block for block in section.blocks if isinstance(block, Chart)]
    assert chart.about == "7 of 12 GPUs (axis does not start at 0)"
    assert [shape.name.split("GPU ")[1] for shape in chart.shapes] == [f"{n}, rank {n}" for n in range(11, 4, -1)]
    assert [tick.text for tick in chart.x_ticks] == [str(number) for number in range(5, 35, 3)]
    assert chart.table.rows[0][1:] == ["1.00 GB", "1.32 GB"]
    [line] = [line for line in list_lines(job.summary, sections, are_below=True) if line.label == "MEMORY"]
    assert line.section == "memory" and line.text.endswith("; 10 more GPUs: --details")


def test_a_page_with_leaks_is_well_formed() -> None:
    text = render_summary(*make_job(40))
    page = Page(text)
    assert page.faults == [] and "<b>`" not in text
    assert any("loss <b>" in row for table in page.tables for row in table)


def test_memory_that_does_not_leak() -> None:
    summary, pictures = job_of("ddp-2x2")
    [section] = [section for section in list_sections(summary, pictures) if section.key == "memory"]
    assert not any(isinstance(block, Paragraph) for block in section.blocks)
    tables = [block for block in section.blocks if isinstance(block, Table)]
    assert summary.memory is not None
    for gpu, row in zip(summary.memory.gpus, tables[0].rows, strict=True):
        assert f"{gpu.peak_bytes / 1e9:.2f} GB" in [str(cell) for cell in row]
