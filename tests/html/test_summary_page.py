"""The page of a summary, as text: its structure, its numbers against the JSON, hostile names, size."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest

from nsys2prv_ng.bundled.presets import list_presets
from nsys2prv_ng.html.summary_page import list_sections, render_summary
from nsys2prv_ng.html.summary_sections.over_time import make_memory_section, make_pace_section
from nsys2prv_ng.summary.answer.answer import answer
from nsys2prv_ng.summary.verdict import Statement, TriedRemedy
from nsys2prv_ng.text.formatting import format_time
from tests.conftest import DATA
from tests.html.made import Page, job_of, rename, repeat_ranks

KEYS = frozenset(
    {
        "key",
        "title",
        "about",
        "unit",
        "preset",
        "cause",
        "path_class",
        "kernel_class",
        "alignment",
        "reason",
        "function",
        "what",
    }
)
"""Texts that the program sets, not the reports."""
HOSTILE = "`</script></style><img src=x onerror=hack()>\"'><b>\u202e&amp;{{7*7}}"


@pytest.mark.slow
def test_every_part_of_a_summary_has_a_section() -> None:
    summary, pictures = job_of("ddp-2x2")
    keys = [section.key for section in list_sections(summary, pictures)]
    assert keys == [
        "step", "findings", "pace", "what-if", "waits", "over-time", "gaps", "critical-path", "efficiency", "ranges",
        "kernels", "operations", "memory", "facts", "quality",
    ]  # fmt: skip


def test_what_a_job_lacks_has_no_section() -> None:
    summary, pictures = job_of("single-graph")
    keys = [section.key for section in list_sections(summary, pictures)]
    assert "waits" not in keys and "step" not in keys and "kernels" in keys and "gaps" in keys
    assert keys[0] == "over-time"  # the picture of a job without steps


@pytest.mark.parametrize(
    ("scripts", "jobs", "title"),
    [
        (["train.py"], [4711], "train.py: Slurm job 4711, 4 GPUs on 2 nodes, 2026-11-20"),
        ([], [], "python3: 4 GPUs on 2 nodes, 2026-11-20"),
        (list("abcde"), [1, 2, 3, 4], "a, b, c, ...: Slurm job 1, 2, 3, ..., 4 GPUs on 2 nodes, 2026-11-20"),
    ],
)
def test_the_title_names_the_job(scripts: list[str], jobs: list[int], title: str) -> None:
    summary, pictures = job_of("ddp-2x2")
    assert summary.facts is not None
    assert summary.facts.scripts == ["train.py"] and summary.facts.slurm_jobs == [4711]
    named = replace(summary, facts=replace(summary.facts, scripts=scripts, slurm_jobs=jobs))
    text = render_summary(named, pictures)
    assert f"<title>{title}</title>" in text and f"<h1>{title}</h1>" in text


def test_the_first_lines_have_the_bar_of_gpu_time_and_the_section_to_see() -> None:
    """The bar has the parts of GPU time of the efficiencies, computed here by hand."""
    summary, pictures = job_of("ddp-2x2")
    assert summary.efficiency is not None and summary.efficiency.in_steps is not None
    losses = summary.efficiency.in_steps.losses
    assert losses is not None
    whole = losses.devices * summary.efficiency.in_steps.length_ns
    text = render_summary(summary, pictures).partition('<section id="step"')[0]
    for name, ns in (("data transfer", losses.moving_ns), ("compute", losses.compute_ns)):
        assert re.search(rf'width:{100 * ns / whole:.2f}%;[^>]+title="{name} {100 * ns / whole:.1f}%"', text)
    widths = [float(width) for width in re.findall(r"width:([0-9.]+)%", text)]
    assert sum(widths) == pytest.approx(100, abs=0.1)
    see = text.partition("<strong>SEE</strong>")[2].partition("</li>")[0]
    assert see.removeprefix(" <div>").startswith('<a href="#waits">Waits and their causes</a>; analysis/exposed_comm')


def test_equal_lines_are_one_and_level_lines_none() -> None:
    """Times of steps that no eye distinguishes are one line; memory that never changes has no chart."""
    summary, pictures = job_of("ddp-2x2")
    assert pictures.pace is not None and summary.memory is not None
    differing = pictures.pace.ns * np.array([[1], [1.5], [1], [1]])
    for ns, names in ((pictures.pace.ns, ["all ranks"]), (differing, pictures.pace.tasks)):
        pace = make_pace_section(summary, replace(pictures, pace=replace(pictures.pace, ns=ns)))
        assert pace is not None
        assert [shape.name for shape in pace.blocks[0].shapes] == names
    for growth, count in ((0, 0), (1, 1)):
        gpus = [replace(gpu, least_by_step=[10**9, 10**9 + growth]) for gpu in summary.memory.gpus]
        memory = make_memory_section(replace(summary, memory=replace(summary.memory, gpus=gpus)), pictures)
        assert memory is not None
        assert [block.kind for block in memory.blocks].count("chart") == count


def test_remedies_have_the_code_of_the_guide() -> None:
    """TRY links to it."""
    summary, pictures = job_of("single-graph")
    verdict = replace(
        answer(summary),
        statements=[Statement(label="TRY", text="launch less", evidence=["remedies"])],
        remedies=[TriedRemedy(key="cuda-graphs", saving_ns=10**6)],
    )
    text = render_summary(replace(summary, verdict=verdict), pictures)
    guide = (DATA.parents[1] / "docs/guides/remedies.md").read_text(encoding="utf-8")
    code = re.split(r"```\w*\n", guide.partition("## cuda-graphs\n")[2])[1]
    assert code.strip() in "".join(Page(text).texts) and 'href="#try"' in text


def test_efficiencies_of_a_capture_without_steps_are_of_the_work() -> None:
    summary, pictures = job_of("single-graph")
    section = next(section for section in list_sections(summary, pictures) if section.key == "efficiency")
    [tree] = section.blocks
    assert [title.split(" (")[0] for title in tree.titles] == ["", "capture", "work"]
    efficiency = summary.efficiency
    assert efficiency is not None and efficiency.work_ns is not None
    low, high = (float(limit.removesuffix("s")) for limit in section.window.split(":"))
    assert (low * 1e9 <= efficiency.work_ns[0]) and (high * 1e9 >= efficiency.work_ns[1])
    assert high - low == pytest.approx((efficiency.work_ns[1] - efficiency.work_ns[0]) / 1e9, rel=0.01)


@pytest.mark.parametrize("name", ["ddp-2x2", "mpi-4", "single-graph"])
def test_pages_are_well_formed_and_need_nothing_else(name: str) -> None:
    text = render_summary(*job_of(name))
    page = Page(text)
    assert page.faults == []
    ids = [element.attributes["id"] for element in page.elements if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    links = [element.attributes["href"] for element in page.elements if "href" in element.attributes]
    assert links and all(link.startswith("#") and link[1:] in ids for link in links)
    sources = [element.attributes["src"] for element in page.elements if "src" in element.attributes]
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert not re.search(r"https?:|url\(|@import|src=.//", text)
    assert {element.tag for element in page.elements}.isdisjoint({"link", "iframe", "object", "embed", "form"})


def test_named_presets_exist() -> None:
    known = {preset.name for preset in list_presets()}
    for name in ("ddp-2x2", "mpi-4", "single-graph"):
        for section in list_sections(*job_of(name)):
            assert set(section.presets) <= known, section.key


def test_tables_have_the_numbers_of_the_summary() -> None:
    summary, pictures = job_of("ddp-2x2")
    tables = Page(render_summary(summary, pictures)).tables
    cells = {tuple(row) for table in tables for row in table}
    (nccl,) = [table for table in tables if "NCCL time" in table[0]]
    assert summary.waits is not None and summary.critical_path is not None
    for rank in summary.waits.ranks:
        (row,) = [dict(zip(nccl[0], row, strict=True)) for row in nccl if row[0] == f"rank {rank.rank}"]
        times = {"NCCL time": rank.nccl_ns, "wait time": rank.wait_ns, "transfer": rank.transfer_ns}
        times["wait caused"] = rank.caused_wait_ns
        assert {title: row[title] for title in times} == {title: format_time(ns) for title, ns in times.items()}
        assert row["exposed wait"] == ("-" if rank.exposed_wait_ns is None else format_time(rank.exposed_wait_ns))
        assert row.get("unclassified", "0 ns") == format_time(rank.unsplit_ns)
    for kernel in summary.kernels[:20]:
        expected = (kernel.name, kernel.kernel_class, f"{kernel.count:,}", format_time(kernel.total_ns))
        assert any(row[:4] == expected for row in cells), kernel.name
    for rank in summary.critical_path.ranks:
        assert any(row[:2] == (f"rank {rank.rank}", format_time(rank.ns)) for row in cells)


def test_the_tables_of_ranges_have_the_numbers_of_the_summary() -> None:
    """The folded one has all ranges, the other those with a tenth of GPU time."""
    summary, pictures = job_of("ddp-2x2")
    text = render_summary(summary, pictures).partition('<section id="ranges"')[2].partition("</section>")[0]
    whole = sum(node.gpu_ns for node in summary.range_tree if not node.depth)
    large = [node for node in summary.range_tree if 10 * node.gpu_ns >= whole]
    assert 0 < len(large) < len(summary.range_tree)
    for table, nodes in zip(Page(text).tables, (large, summary.range_tree), strict=True):
        names = [(node.name or "(outside NVTX ranges)", format_time(node.gpu_ns)) for node in nodes]
        assert [tuple(row[:2]) for row in table[1:]] == names


def test_bars_of_a_rank_add_up_to_its_path() -> None:
    summary, pictures = job_of("ddp-2x2")
    path = summary.critical_path
    assert path is not None
    section = next(section for section in list_sections(summary, pictures) if section.key == "critical-path")
    *bars, whole = [row[-1] for row in section.blocks[0].rows]
    scale = max(rank.ns for rank in path.ranks)
    for bar, rank in zip(bars, path.ranks, strict=True):
        assert sum(segment.width for segment in bar) == pytest.approx(100 * rank.ns / scale, abs=0.2)
    assert sum(segment.width for segment in whole) == pytest.approx(100, abs=0.2)


def test_tasks_of_one_rank_have_bars_of_their_own() -> None:
    """Reports of several jobs have tasks with the same rank: each has its own time by class."""
    summary, pictures = job_of("ddp-2x2")
    path = summary.critical_path
    assert path is not None and len(path.ranks) > 1
    parts = [replace(part, ranks=[replace(rank, rank=0) for rank in part.ranks]) for part in path.parts]
    same = replace(path, ranks=[replace(rank, rank=0) for rank in path.ranks], parts=parts)
    made = [list_sections(replace(summary, critical_path=own), pictures) for own in (path, same)]
    own, merged = (next(section for section in sections if section.key == "critical-path") for sections in made)
    assert [row[-1] for row in merged.blocks[0].rows] == [row[-1] for row in own.blocks[0].rows]


def test_images_hold_the_values_of_the_pictures() -> None:
    """A reader of PNG by its specification finds the indexes that the values have on their scale."""
    summary, pictures = job_of("ddp-2x2")
    text = render_summary(summary, pictures)
    images = [decode(url) for url in re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", text)]
    facts = [json.loads(found) for found in re.findall(r'<script type="application/json">(.*?)</script>', text)]
    assert pictures.step is not None
    shown = [(image, fact) for image, fact in zip(images, facts, strict=True) if "kinds" not in fact]
    # The largest part of GPU time is the transfer: its map is the first.
    heats = sorted(pictures.heat_maps, key=lambda heat: heat.key != "moving")
    for heat, (image, fact) in zip(heats, shown, strict=True):
        assert image.shape == heat.values.shape and fact["rows"] == heat.rows
        assert (fact["from"], fact["to"]) == (pictures.begin_ns, pictures.end_ns)
        assert ((image == 0) == np.isnan(heat.values)).all()
        share = np.where(image > 0, image - 1.0, 0) / 254
        read = (share**2 if fact["root"] else share) * fact["top"]
        step = fact["top"] / 254 * (2 if fact["root"] else 1)
        assert np.nanmax(np.abs(read - heat.values), initial=0) <= 0.51 * step
    (strips,) = [image for image, fact in zip(images, facts, strict=True) if "kinds" in fact]
    assert (strips == pictures.step.values).all()


def decode(base: str) -> np.ndarray:
    data = base64.b64decode(base)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, {}
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + content),)
        parts[kind] = content
        at += 12 + length
    columns, rows, depth, colours, *rest = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    assert (depth, colours, *rest) == (8, 3, 0, 0, 0)
    lines = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(rows, columns + 1)
    assert not lines[:, 0].any() and lines.max() < len(parts[b"PLTE"]) // 3
    return lines[:, 1:]


def test_hostile_names_change_no_markup() -> None:
    """The page of names that try to be markup has the elements and attributes of one with harmless names."""
    job = job_of("ddp-2x2")
    pages = []
    for name in ("harmless", HOSTILE):
        changed = [rename(part, lambda text, name=name: f"{text} {name}" if text else text, KEYS) for part in job]
        pages.append(render_summary(*changed))
    harmless, hostile = map(Page, pages)
    assert hostile.faults == [] and hostile.structure == harmless.structure
    assert "\u202e" not in pages[1]
    assert "{{7*7}}" in "".join(hostile.texts)
    for attribute in ("style", "d", "fill", "id", "href", "src", "class"):
        values = [[e.attributes.get(attribute) for e in page.elements] for page in (harmless, hostile)]
        if attribute != "src":
            assert values[0] == values[1], attribute


def test_same_job_same_bytes() -> None:
    assert render_summary(*job_of("mpi-4")) == render_summary(*job_of("mpi-4"))


def test_a_page_of_1024_ranks_is_small() -> None:
    many = repeat_ranks(job_of("ddp-2x2"), 256)
    text = render_summary(*many)
    assert len(text) < 2_000_000
    assert Page(text).faults == []


def test_a_summary_without_pictures_of_steps() -> None:
    summary, pictures = job_of("ddp-2x2")
    bare = replace(pictures, heat_maps=[], step=None, pace=None, clocks=[])
    page = Page(render_summary(summary, bare))
    assert page.faults == [] and not any(element.tag == "img" for element in page.elements)


def test_waits_and_quality_have_sections_even_without_blocks() -> None:
    summary, pictures = job_of("ddp-2x2")
    assert summary.waits is not None and summary.facts is not None
    waits = replace(summary.waits, split=0, below_uncertainty=0, not_split={}, bandwidth=[])
    facts = replace(summary.facts, lost_data_messages=0)
    bare = replace(summary, waits=waits, facts=facts, warnings=[], skipped=[], absent=[])
    sections = {section.key: section.blocks for section in list_sections(bare, replace(pictures, clocks=[]))}
    assert sections["waits"] == sections["quality"] == []
