"""The page of a comparison: its numbers against the JSON, hostile names, saved summaries, several pairs, size."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nsys2prv_ng
from nsys2prv_ng.bundled.presets import list_presets
from nsys2prv_ng.comparison.compare import compare_sides
from nsys2prv_ng.comparison.model import Side
from nsys2prv_ng.comparison.tables import _SUMMED
from nsys2prv_ng.html.comparison_page import choose_common_steps, list_sections, render_comparison
from nsys2prv_ng.html.comparison_sections import _EVERYTHING, _PART_PRESETS, _PRESETS
from nsys2prv_ng.summary.efficiency.windows import COMPUTE, IN_CUDA, IN_MPI, PARTS
from nsys2prv_ng.summary.pictures.numbers import Pictures
from nsys2prv_ng.text.names import USER_CODE
from tests.comparison.made import MS, make_summary
from tests.comparison.made_runs import make_run
from tests.comparison.test_markdown import HOSTILE as HOSTILE_MARKDOWN
from tests.conftest import Unpacked
from tests.html.made import Page
from tests.html.made_comparison import drop_steps, make_pictures, make_side
from tests.html.test_summary_page import HOSTILE, decode
from tests.tiers import cases

ROOT = Path(__file__).parents[2]
UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "%": 0.01, "": 1}
SIDES = [make_side("before"), make_side("after", 1.25)]
DRAWN: list[Pictures | None] = [make_pictures(40 * MS), make_pictures(50 * MS)]


def render(sides: list[Side], pictures: list[Pictures | None] | None = None) -> str:
    return render_comparison(compare_sides(sides), sides, pictures or [None for _ in sides])


def read_number(text: str) -> float | None:
    """The number of a cell in ns, bytes or as it is, whatever its unit; None if it is no number."""
    found = re.fullmatch(r"([+-]?[\d,.]+)\s?(ns|us|ms|s|kB|MB|GB|B|%|)", text)
    return None if found is None else float(found[1].replace(",", "")) * UNITS[found[2]]


def is_shown(value: float | None, text: str) -> bool:
    if value is None:
        return text == "-"
    return read_number(text) == pytest.approx(value, rel=0.006, abs=0.0006)


def assert_rows_that_differ_are_there(page: Page, pair: dict[str, Any]) -> None:
    """Every row of the JSON that differs stands in a table with its name and its numbers."""
    rows = [row for table in page.tables for row in table]
    count = 0
    for row in pair["rows"]:
        if row["differs"]:
            shown = [own for own in rows if own and own[0] == row["name"] and own[-1] == "yes"]
            assert any(
                all(map(is_shown, (row["a_ns"], row["b_ns"], row["difference_ns"]), own[2:5])) for own in shown
            ), row
            count += 1
    for table in pair["tables"]:
        for row in table["rows"]:
            if row["differs"]:
                name = " ".join(row["name"].split())[:150]
                shown = [own for own in rows if own and own[0].startswith(name)]
                at = 2 if any(own["detail"] for own in table["rows"]) else 1
                assert any(len(own) > at + 1 and all(map(is_shown, (row["a"], row["b"]), own[at:])) for own in shown)
                count += 1
    assert count


def test_rows_that_differ_are_there() -> None:
    page = Page(render(SIDES, DRAWN))
    assert page.faults == []
    assert_rows_that_differ_are_there(page, compare_sides(SIDES).to_dict())


@pytest.mark.slow
@pytest.mark.parametrize("ranks", cases([1, 4], push=1))
def test_real_runs(shared_reports: Path, unpacked: Unpacked, tmp_path: Path, ranks: int) -> None:
    sides = [
        [unpacked(shared_reports / f"exercises/{name}.rank{rank}.sqlite") for rank in range(ranks)]
        for name in ("ex2b-manual", "ex2b-overlap")
    ]
    comparison = nsys2prv_ng.compare(sides, html=tmp_path / "cmp.html", jobs=1)
    text = (tmp_path / "cmp.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.faults == [] and len(text) < 500_000
    assert_rows_that_differ_are_there(page, comparison.to_dict())
    facts = [json.loads(found) for found in re.findall(r'<script type="application/json">(.*?)</script>', text)]
    assert len({fact["to"] - fact["from"] for fact in facts}) == 1 and len(facts) == 2


def test_pages_are_well_formed_and_need_nothing_else() -> None:
    for sides, drawn in ((SIDES, DRAWN), ([*SIDES, make_side("third", 0.5)], [*DRAWN, None])):
        text = render(sides, drawn)
        page = Page(text)
        assert page.faults == []
        ids = [element.attributes["id"] for element in page.elements if "id" in element.attributes]
        links = [element.attributes["href"] for element in page.elements if "href" in element.attributes]
        assert len(ids) == len(set(ids)) and len(links) > len(sides)
        assert all(link.startswith("#") and link[1:] in ids for link in links)
        assert not re.search(r"https?:|url\(|@import|src=.//", text)


def test_named_presets_exist() -> None:
    known = {preset.name for preset in list_presets()}
    assert {*_PRESETS.values(), *_PART_PRESETS.values(), _EVERYTHING} <= known
    assert set(_PART_PRESETS) <= {*PARTS.values(), COMPUTE, USER_CODE, IN_CUDA, IN_MPI}
    assert {"host-bound", "data transfer", "wait time"} <= set(_PART_PRESETS)
    assert set(_SUMMED) <= set(_PRESETS)
    for section in list_sections(compare_sides(SIDES), SIDES, DRAWN):
        assert section.presets and set(section.presets) <= known
        assert section.traces


def test_what_prevents_comes_first_and_verdicts_lead_to_their_sections() -> None:
    sides = [make_side("before"), drop_steps(make_side("after", 2)), make_side("last", 2)]
    page = render(sides)
    top = page.split('<ul class="verdict">')[1].split("</section>")[0]
    lines = [[*re.findall('href=.#(.*?)["]', line), re.sub("<.*?>", "", line)] for line in top.split("<li>")]
    leading = [line for line in lines if len(line) == 2]
    assert [section for section, _ in leading] == ["sides", "difference-1", "difference-2", "sides"]
    assert leading[0][1].startswith("TRUST steps: step (before, last) vs none (after)")
    assert leading[1][1].startswith("INCONCLUSIVE ") and leading[3][1].startswith("NOTE ")
    assert leading[2][1].startswith("SLOWER last is slower than before")
    section = page.split('<section id="difference-1"')[1].split("</section>")[0]
    assert (
        "Inconclusive: no times of <code>before</code> and <code>after</code> can be compared" in section
        and "<table>" not in section
    )


def make_steps(count: int, name: str = "step") -> Side:
    summary = make_summary([{"compute_ns": MS}] * count)
    return Side("x", summary if summary.steps is None else replace(summary, steps=replace(summary.steps, name=name)))


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        ([make_steps(5), make_steps(3), make_steps(4)], (1, 3)),
        ([make_steps(1), make_steps(3)], (1, 1)),
        ([make_steps(5), make_steps(5, "other")], None),
        ([make_steps(5), make_steps(0)], None),
    ],
)
def test_steps_that_all_sides_have(sides: list[Side], expected: tuple[int, int] | None) -> None:
    assert choose_common_steps(sides) == expected


# ---- typical steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [(40, 50), (50, 40), (40, 40), (2, 2000), (1, 10**6)])
def test_typical_steps_share_an_axis(lengths: tuple[int, int]) -> None:
    """Both axes are as long as the longer step; an image knows nothing after the end of its step."""
    text = render(SIDES, [make_pictures(length * MS) for length in lengths])
    facts = [json.loads(found) for found in re.findall(r'<script type="application/json">(.*?)</script>', text)]
    images = [decode(url) for url in re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", text)]
    groups = re.findall(r'data-group="(.*?)"', text)
    assert len(set(groups)) == 1 and len(images) == 2
    assert [fact["to"] - fact["from"] for fact in facts] == [max(lengths) * MS] * 2
    for image, length in zip(images, lengths, strict=True):
        known = (image > 0).sum(axis=1)
        columns = image.shape[1]
        assert columns <= 20_000 and np.ptp(known) == 0
        assert abs(known[0] - columns * length / max(lengths)) <= 1
        assert (image[:, known[0] :] == 0).all() and (image[:, : known[0]] > 0).all()
        if length == max(lengths):
            assert (image == make_pictures(length * MS).step.values).all()  # type: ignore[union-attr]


def test_saved_summaries_have_no_pictures(tmp_path: Path) -> None:
    """Two saved runs and one object, from the call to the file."""
    for side in SIDES:
        side.summary.save(tmp_path / f"{side.label}.json")
    files = [tmp_path / f"{side.label}.json" for side in SIDES]
    comparison = nsys2prv_ng.compare([*files, SIDES[0].summary], labels=["a", "b", "c"], html=tmp_path / "c.html")
    text = (tmp_path / "c.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.faults == [] and not any(element.tag == "img" for element in page.elements)
    assert text.count("only a summary was given") == 3
    for pair in comparison.to_dict()["pairs"][:1]:
        assert_rows_that_differ_are_there(page, pair)
    assert "No steps were found in <code>before</code>" in render(SIDES, [Pictures(begin_ns=0, end_ns=1), DRAWN[1]])


# ---- scaling ---------------------------------------------------------------------------------------------------------


def test_scaling_has_its_numbers_and_worse_is_stronger() -> None:
    sides = [
        make_run("one", [800], 100),
        make_run("two", [390, 400], 58, active=[520, 530], in_mpi=20),
        make_run("four", [180, 190, 200, 200], 35, active=[330, 320, 330, 340], in_mpi=90),
    ]
    comparison = compare_sides(sides)
    assert comparison.scaling is not None
    text = render_comparison(comparison, sides, [None] * 3)
    section = text.split('<section id="scaling"')[1].split("</section>")[0]
    rows = {re.sub(r"\?.*", "", row[0]).strip(): row[1:] for row in Page(section).tables[0]}
    assert rows["GPUs"] == ["1", "2", "4"]
    for name, key in (
        ("efficiency", "efficiency"),
        ("global efficiency", "global_efficiency"),
        ("computation scalability", "computation_scalability"),
        ("parallel", "parallel"),
    ):
        assert rows[name] == [f"{100 * getattr(run, key):.1f}%" for run in comparison.scaling.runs]
    assert rows["orchestration"] == [f"{100 * run.device.orchestration:.1f}%" for run in comparison.scaling.runs]  # type: ignore[union-attr]
    shades = re.findall(r'class="shaded" style="--badness:(\d+)%">([\d.]+)%', section)
    assert len({shade for shade, _ in shades}) >= 4
    ordered = sorted((float(rate), -int(shade)) for shade, rate in shades)
    assert [shade for _, shade in ordered] == sorted(shade for _, shade in ordered)
    terms = [row[0] for row in Page(section).tables[0][1:]]
    counts = {"nodes", "processes", "GPUs", "step"}
    assert [term for term in terms if "?" not in term] == [term for term in terms if term in counts]


# ---- hostile names, same bytes, size ---------------------------------------------------------------------------------


@cache
def page_of(name: str) -> Page:
    """A page of three runs with a name in all of their names."""
    sides = [make_side(f"a {name}", name=name), make_side(f"b {name}", 1.5, name=name)]
    sides.append(drop_steps(make_side(f"c {name}")))
    drawn = [make_pictures(40 * MS, name=name), make_pictures(50 * MS, name=name), Pictures(begin_ns=0, end_ns=1)]
    return Page(render_comparison(compare_sides(sides), sides, drawn))


@pytest.mark.parametrize("name", [HOSTILE, *HOSTILE_MARKDOWN, "`<b>", "&quot; onload=x", "' style='x", "-->", "]]>"])
def test_hostile_names_change_no_markup(name: str) -> None:
    harmless, hostile = page_of("harmless"), page_of(name)
    assert hostile.faults == [] and hostile.structure == harmless.structure
    for attribute in ("style", "d", "fill", "id", "href", "class", "for"):
        values = [[e.attributes.get(attribute) for e in page.elements] for page in (harmless, hostile)]
        assert values[0] == values[1], attribute
    assert not any("\u202e" in text or "\x1b" in text for text in hostile.texts)


def test_hostile_names_of_sizes_change_no_markup() -> None:
    """Runs of several sizes with hostile labels, programs and names of steps."""
    pages = []
    for name in ("harmless", HOSTILE, "``", "`"):
        sides = [
            make_run(f"{n} {name}", [100] * n, 90, step_name=f"step {name}", model=f"GPU {name}") for n in (1, 2, 4)
        ]
        pages.append(Page(render(sides)))
    assert all(page.faults == [] and page.structure == pages[0].structure for page in pages)


@pytest.mark.slow
def test_same_runs_same_bytes() -> None:
    """Another process, in which sets have another order, writes the same page."""
    code = (
        "import sys; from tests.html.test_comparison_page import *;"
        "sys.stdout.buffer.write(render(SIDES, DRAWN).encode())"
    )
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True, timeout=120
    )
    assert run.stdout == render(SIDES, DRAWN).encode()


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "count"), cases([(256, 1000), (1024, 4000)], push=1))
def test_a_page_of_large_runs_is_small(rows: int, count: int) -> None:
    """1,024 rows that change all the time, thousands of kernels with long names, many ranges."""
    kernel = "void kernel<" + "float, " * 60
    sides = [make_side("before", kernels=count, name=kernel), make_side("after", 3.0, kernels=count, name=kernel)]
    noise = np.random.default_rng(1)
    drawn: list[Pictures | None] = []
    for length in (40 * MS, 47 * MS):
        pictures = make_pictures(length, rows=rows, bins=976, name=kernel, tasks=8)
        assert pictures.step is not None
        pictures.step.values[:] = noise.integers(1, 4, pictures.step.values.shape)
        for ranges in pictures.step.ranges:
            ranges.bars.extend(ranges.bars[1:] * 398)
        drawn.append(pictures)
    text = render(sides, drawn)
    assert len(text.encode()) < 2_000_000
    assert "more; the JSON has all" in text
