"""Commands to paste: a shell and the program read from them what was meant."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer.main

from nsys2prv_ng.cli.app import app
from nsys2prv_ng.cli.options import collect_options
from nsys2prv_ng.cli.paste import join_command, quote, quote_path, quote_reports, spell_options
from nsys2prv_ng.options.calls import TranslateOptions
from nsys2prv_ng.text.option import list_options

BASH = shutil.which("bash")
has_bash = pytest.mark.skipif(BASH is None, reason="bash is not installed")
NAMES = [
    "plain.prv",
    "two words",
    "it's",
    "$(touch x)`touch x`;&|<>*?[a]!~#",
    "-rf",
    "~",
    "\x1b]0;title\x07\x1b[31mred",
    "line\nbreak\ttab\r",
    "quote'back\\slash\x9b",
    "\u202eright to left",
    "Ä日本",
    "\x7fa1",
    "broken\udcff\udce9",
]


def read_by_shell(words: str, folder: Path) -> list[str]:
    """The words that bash makes of a text."""
    assert BASH is not None
    done = subprocess.run([BASH, "-c", f"printf '%s\\0' {words}"], capture_output=True, cwd=folder, check=True)
    return [word.decode("utf-8", "surrogateescape") for word in done.stdout.split(b"\0")[:-1]]


@has_bash
def test_a_shell_reads_each_word_as_it_was(tmp_path: Path) -> None:
    assert read_by_shell(" ".join(map(quote, NAMES)), tmp_path) == NAMES
    assert not list(tmp_path.iterdir())
    assert all(quote(name).isprintable() for name in NAMES)


def test_the_time_of_the_gpus_is_spelled_as_it_is_typed() -> None:
    assert spell_options(TranslateOptions(time="gpu")) == ["--time", "gpu"]


def test_a_path_is_no_option() -> None:
    assert quote_path("-q.prv") == "./-q.prv"
    assert quote_path(Path("a/-q.prv")) == "a/-q.prv"


@has_bash
@pytest.mark.parametrize("names", [["r0.x", "r1.x", "r10.x", "r2.x"], ["$a b0;", "$a b1;", "$a b2;", "$a b3;"], NAMES])
@pytest.mark.parametrize("other", ["", "r3.x", "$a b;"])
def test_reports_are_those_of_the_pattern(tmp_path: Path, names: list[str], other: str) -> None:
    for name in {*names, other} - {""}:
        (tmp_path / name).touch()
    words = quote_reports([tmp_path / name for name in names])
    assert sorted(read_by_shell(words, tmp_path)) == sorted(str(tmp_path / name) for name in names)
    matching = {"r0.x": "r3.x", "$a b0;": "$a b;"}
    is_pattern = names[0] in matching and other != matching[names[0]]
    assert words.count(str(tmp_path)) == (1 if is_pattern else len(names))


def test_a_pattern_is_short(tmp_path: Path) -> None:
    reports = [tmp_path / f"rank{i}.sqlite" for i in range(1000)]
    for report in reports:
        report.touch()
    assert quote_reports(reports) == f"{tmp_path}/rank*.sqlite"
    assert quote_reports(reports[:999]).count(" ") == 998
    assert quote_reports(reports[:2]) == f"{reports[0]} {reports[1]}"


# ---- options ---------------------------------------------------------------------------------------------------------

VALUES: dict[str, Any] = {
    "jobs": 3,
    "align": "c l.toml",
    "time": (None, 1500),
    "steps": (3, None),
    "skip_warmup": True,
    "step": "it's $HOME",
    "nvtx_range": "step *",
    "ranks": frozenset({0, 1, 2, 8}),
    "memory": 1536 * 2**20 + 1,
    "tmp": "-t",
    "strict": True,
    "several_jobs": True,
    "fold_threads": True,
    "dask": "tcp://node 1:8786",
    "sources": ("kernels", "nvtx", "gpu_metrics"),
    "derived": False,
    "wait_lines": 0,
    "align_report": "x.toml",
    "gpus": frozenset({1}),
    "min_duration": {"kernels": 10_000, "nvtx": 7},
    "nvtx_domain": ("default", "my app"),
    "kernel_names": "demangled",
    "nccl_channels": True,
    "nccl_inspector": "a folder",
    "metrics": ("SM*", "DRAM*"),
    "osrt_min": 250,
    "stack_depth": 5,
    "labels_from": "a b.pcf",
    "paraver_memory": 0,
    "force": True,
    "stats": "s.json",
    "summary": True,
}


@has_bash
@pytest.mark.parametrize("name", VALUES)
def test_the_program_reads_each_option_as_it_was(name: str, tmp_path: Path) -> None:
    options = TranslateOptions(**{name: VALUES[name]})
    assert parse(read_by_shell(" ".join(spell_options(options)), tmp_path)) == options


@has_bash
def test_the_program_reads_all_options_together(tmp_path: Path) -> None:
    options = TranslateOptions(**VALUES)
    assert parse(read_by_shell(" ".join(spell_options(options)), tmp_path)) == options
    left = parse(read_by_shell(" ".join(spell_options(options, {"stats", "jobs"})), tmp_path))
    assert (left.stats, left.jobs) == (None, None) and left.ranks == options.ranks


def test_every_option_was_tried() -> None:
    assert set(VALUES) | {"metrics_changes", "overview_trace"} >= set(list_options(TranslateOptions))
    assert all(value != getattr(TranslateOptions(), name) for name, value in VALUES.items())
    assert {field.name for field in fields(TranslateOptions)} >= set(VALUES)


def test_defaults_are_not_repeated() -> None:
    assert spell_options(TranslateOptions()) == []
    assert join_command("check", "a", "b") == "nsys2prv-ng check a b"


def parse(words: list[str]) -> TranslateOptions:
    """The options that the command line makes of words."""
    command = typer.main.get_command(app).commands["translate"]  # type: ignore[attr-defined]
    context = command.make_context("translate", ["r.sqlite", "x.prv", *words])
    typed = {name: context.params[name] for name in list_options(TranslateOptions)}
    typed["min_duration"] = typed["min_duration"] or None
    return collect_options(TranslateOptions, typed)
