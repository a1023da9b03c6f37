"""Numbers of steps anywhere in the names of ranges: against the sample with other texts, and by plain loops."""

from __future__ import annotations

import re
import shutil
import sqlite3
import time
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nsys2prv_ng
from nsys2prv_ng.steps.numbered_names import compile_template, find_templates, is_step, number_step

# Of TensorRT-LLM (`[Executor] _forward_step`), and as loops of training print them.
FORMS = {
    "[Executor] _forward_step {}: 0 ctx reqs, 0 ctx tokens, 16 gen reqs": "[Executor] _forward_step*",
    "train_step_{}": "train_step_{n}",
    "Iteration {}/100": "Iter* {n}/100",
    "step={}, loss=0.9": "step={n}, *",
}


@pytest.mark.parametrize("form", FORMS)
def test_other_texts_of_the_same_steps(samples, tmp_path, form):
    """They are found alone and by a template, and the answer is the same."""
    reports = sorted(samples.glob("ddp-2x2.*.sqlite"))
    copies = [tmp_path / report.name for report in reports]
    for report, copy in zip(reports, copies, strict=True):
        shutil.copyfile(report, copy)
        with closing(sqlite3.connect(copy)) as database, database:
            for number in range(6):
                changed = database.execute(
                    "UPDATE NVTX_EVENTS SET text = ? WHERE text = ?", (form.format(number), f"step {number}")
                )
                assert changed.rowcount == 1
    expected, found, named = (
        nsys2prv_ng.summarize(paths, step=step) for paths, step in ((reports, ""), (copies, ""), (copies, FORMS[form]))
    )
    for summary in (found, named):
        assert (summary.steps.first, summary.steps.last) == (expected.steps.first, expected.steps.last) == (1, 5)
        assert summary.steps.median_ns == expected.steps.median_ns
        assert summary.verdict.gains == expected.verdict.gains
    assert re.sub(r"[0-9.]+", "*", form.format("{n}")) == found.steps.name


@given(
    st.lists(
        st.lists(st.sampled_from(["step", "_", " ", "3", "14", "0.5", "/", "é"]), max_size=5).map("".join), max_size=12
    ).map(lambda names: list(dict.fromkeys(names)))
)
def test_templates_against_a_plain_loop(names: list[str]) -> None:
    found = find_templates(names, 3)
    expected = []
    for index, name in enumerate(names):
        alike = [
            other
            for other in names
            if re.sub(r"[0-9]+(\.[0-9]+)*", "*", other) == re.sub(r"[0-9]+(\.[0-9]+)*", "*", name)
        ]
        for at, number in enumerate(re.finditer(r"[0-9]+(\.[0-9]+)*", name)):
            numbers = [re.findall(r"[0-9]+(?:\.[0-9]+)*", other)[at] for other in alike]
            if len(alike) >= 3 and not any("." in text for text in numbers):
                before, after = (
                    re.sub(r"[0-9]+(\.[0-9]+)*", "*", name[part])
                    for part in (slice(number.start()), slice(number.end(), None))
                )
                expected.append((index, before + "{n}" + after, int(number[0])))
    got = list(zip(found.name.tolist(), found.template.tolist(), found.number.tolist(), strict=True))
    assert got == sorted(expected)
    assert all(compile_template(template)(names[index])["n"] == str(number) for index, template, number in got)
    assert all(is_step(names[index], template) for index, template, _ in got)


def test_many_wildcards_take_no_time() -> None:
    start = time.process_time()
    assert not is_step("a" * 2_000, "*a" * 200 + "{n}b")
    assert time.process_time() - start < 1


def test_brackets_and_question_marks_are_plain_characters() -> None:
    assert is_step("[a]? 3!", "[a]? {n}!") and not is_step("a 3!", "[a] {n}!") and not is_step("ab", "a?")


def test_numbers_in_the_place_of_the_template() -> None:
    assert [number_step(name, "1-5") for name in ("step", "it_{n}/*")] == ["step 1-5", "it_1-5/*"]


def test_ranges_of_layers_are_no_steps(samples, tmp_path):
    """Only the ranges within one step are left, and named like layers: kernels show the steps, as without ranges."""
    copies = []
    for report in sorted(samples.glob("ddp-2x2.*.sqlite")):
        copies.append(tmp_path / report.name)
        shutil.copyfile(report, copies[-1])
        with closing(sqlite3.connect(copies[-1])) as database, database:
            step = "SELECT {} FROM NVTX_EVENTS WHERE text = 'step 3'"
            begin, end = (database.execute(step.format(limit)).fetchone()[0] for limit in ("start", '"end"'))
            outside = f"NOT (start > {begin} AND start < {end}) OR text LIKE 'step %'"
            database.execute(f"DELETE FROM NVTX_EVENTS WHERE eventType = 59 AND ({outside})")
            ranges = database.execute("SELECT rowid FROM NVTX_EVENTS WHERE eventType = 59 ORDER BY start").fetchall()
            database.executemany(
                "UPDATE NVTX_EVENTS SET text = ?, textId = NULL, domainId = 0 WHERE rowid = ?",
                [(f"layer{number}.mlp", *row) for number, row in enumerate(ranges)],
            )
        assert len(ranges) >= 3
    steps = nsys2prv_ng.summarize(copies).steps
    assert steps.delimiter and 50_000_000 < steps.median_ns < 120_000_000


def test_templates_of_strangers_take_no_time() -> None:
    start = time.process_time()
    assert not is_step("1" * 90, "{n}" * 9 + "x")
    assert time.process_time() - start < 1
