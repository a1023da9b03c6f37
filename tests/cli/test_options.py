"""Options of commands, as they are made from the declared ones and read back."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

import nsys2prv_ng
from nsys2prv_ng.bundled.job_script import ScriptOptions
from nsys2prv_ng.cli.app import app
from nsys2prv_ng.cli.options import find_flag, spell, with_options
from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.options.calls import (
    CallOptions,
    CompareOptions,
    InspectOptions,
    ShardOptions,
    SummaryOptions,
    TranslateOptions,
)
from nsys2prv_ng.options.kinds import list_options, parse_align, parse_path, parse_paths
from nsys2prv_ng.recording.options import RankOptions, RecordingOptions
from tests.cli.program_runs import run

CLASSES = {
    "translate": TranslateOptions,
    "summary": SummaryOptions,
    "compare": CompareOptions,
    "inspect": InspectOptions,
    "check": CallOptions,
    "shard": ShardOptions,
    "run-rank": RankOptions,
    "record": RecordingOptions,
    "slurm": ScriptOptions,
}


def choose(options: type, *words: str) -> Any:
    """The options that a command makes of words."""
    chosen: list[Any] = []
    program = typer.Typer()
    program.command()(with_options(options)(lambda options: chosen.append(options)))
    typer.main.get_command(program).main(list(words), standalone_mode=False)
    return chosen[0]


@pytest.mark.parametrize("command", CLASSES)
def test_a_command_has_every_option_of_its_class(command: str) -> None:
    described = list_options(CLASSES[command])
    parameters = {parameter.name: parameter for parameter in typer.main.get_command(app).commands[command].params}
    assert set(described) <= set(parameters)
    for name, option in described.items():
        assert option.flag in parameters[name].opts
        assert parameters[name].help == option.help


@pytest.mark.parametrize("options", CLASSES.values())
def test_what_was_not_typed_keeps_its_default(options: type) -> None:
    assert choose(options) == options()


TYPED = {
    "jobs": ("-j 3", 3),
    "align": ("--align=c.toml", "c.toml"),
    "time": ("--time :1500ns", (None, 1500)),
    "steps": ("--steps 3:", (3, None)),
    "skip_warmup": ("--skip-warmup", True),
    "step": ("--step it's", "it's"),
    "nvtx_range": ("--nvtx-range step*", "step*"),
    "ranks": ("--ranks 0-2,8", (0, 1, 2, 8)),
    "memory": ("--memory 1.5G", 3 * 2**29),
    "tmp": ("--tmp -t", Path("-t")),
    "strict": ("--strict", True),
    "several_jobs": ("--several-jobs", True),
    "fold_threads": ("--fold-threads", True),
    "dask": ("--dask tcp://node:8786", "tcp://node:8786"),
    "sources": ("--sources kernels,nvtx", ("kernels", "nvtx")),
    "derived": ("--no-derived", False),
    "wait_lines": ("--wait-lines 0", 0),
    "align_report": ("--align-report x.toml", Path("x.toml")),
    "gpus": ("--gpus 1", (1,)),
    "min_duration": ("--min-duration kernels=10us --min-duration nvtx=7ns", {"kernels": 10_000, "nvtx": 7}),
    "nvtx_domain": ("--nvtx-domain default,app", ("default", "app")),
    "kernel_names": ("--kernel-names demangled", "demangled"),
    "nccl_channels": ("--nccl-channels", True),
    "metrics": ("--metrics SM*,DRAM*", ("SM*", "DRAM*")),
    "metrics_changes": ("--metrics-changes", True),
    "osrt_min": ("--osrt-min 250ns", 250),
    "stack_depth": ("--stack-depth 5", 5),
    "overview_trace": ("--overview-trace", True),
    "labels_from": ("--labels-from b.pcf", Path("b.pcf")),
    "paraver_memory": ("--paraver-memory 0", 0),
    "force": ("--force", True),
    "stats": ("--stats s.json", Path("s.json")),
    "summary": ("--summary", True),
}
"""What is typed for each option of a translation, and the value that the option keeps."""


def test_typed_texts_become_values() -> None:
    assert set(TYPED) == set(list_options(TranslateOptions))
    for name, (words, value) in TYPED.items():
        kept = choose(TranslateOptions, *words.split())
        assert kept == TranslateOptions(**{name: value}) != TranslateOptions()
        assert getattr(kept, name) == value


PATHS = (parse_path, parse_paths, parse_align)


@pytest.mark.parametrize("command", CLASSES)
def test_an_empty_path_is_an_error(command: str) -> None:
    """It would be the current folder."""
    for name, option in list_options(CLASSES[command]).items():
        if option.parse in PATHS or name in ("html", "save"):
            with pytest.raises(UsageError) as raised:
                choose(CLASSES[command], option.flag, "")
            assert spell(raised.value) == f"{option.flag}: must not be empty"


@pytest.mark.parametrize(
    ("command", "flags"),
    {
        "translate": {"--tmp", "--align-report", "--labels-from", "--stats"},
        "summary": {"--tmp", "--html", "--save", "--talp", "--csv"},
        "compare": {"--tmp", "--html", "--against"},
        "cfgs": {"--install"},
    }.items(),
)
def test_no_command_writes_into_the_current_folder_for_an_empty_path(
    tmp_path: Path, command: str, flags: set[str]
) -> None:
    parameters = typer.main.get_command(app).commands[command].params
    words = ["out.prv"] * sum(parameter.param_type_name == "argument" for parameter in parameters)
    named = {parameter.opts[0]: str(parameter.metavar) for parameter in parameters}
    assert {flag for flag, metavar in named.items() if re.match("FILE|FOLDER|DIR|OTHER", metavar)} == flags
    for flag in flags:
        done = run(command, *words, flag, "", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{flag}: must not be empty" in done.stderr.replace("'", "")
    assert list(tmp_path.iterdir()) == []


def test_errors_of_rooms_below_name_the_option() -> None:
    assert spell(UsageError("starts too late", parameter="time")) == "--time: starts too late"
    assert spell(UsageError("no domain", parameter="nvtx_domain", value="x\ny")) == "--nvtx-domain x?y: no domain"
    assert spell(UsageError("out.prv: no such folder")) == "out.prv: no such folder"
    assert find_flag("derived") == "--no-derived"


@pytest.mark.parametrize(
    ("error", "typed", "message"),
    [
        (UsageError("no", parameter="time"), "--time 9s:", "--time '9s:': no"),
        (UsageError("no", parameter="time"), "a.sqlite --time=9s:10s o.prv", "--time 9s:10s: no"),
        (UsageError("no", parameter="jobs", value="0"), "-j 0", "-j 0: no"),
        (UsageError("no", parameter="jobs"), "-j0", "-j 0: no"),
        (UsageError("no", parameter="jobs"), "--jobs 0", "--jobs 0: no"),
        (UsageError("no", parameter="labels"), "--label a", "--label a: no"),
        (UsageError("no", parameter="ranks", value=9), "--ranks 7-9", "--ranks 9: no"),
        # Several values, none, and what is no option any more.
        (UsageError("no", parameter="labels"), "--label a --label b", "--label: no"),
        (UsageError("no", parameter="strict"), "--strict a.sqlite", "--strict: no"),
        (UsageError("no", parameter="nodes"), "slurm -- --nodes 3", "--nodes: no"),
        (UsageError("no", parameter="labels"), "compare a -- b --label x", "--label x: no"),
        (UsageError("no", parameter="--markdown"), "compare --markdown -q", "--markdown: no"),
        (UsageError("no", parameter="time_limit"), "slurm --time-limit a", "--time-limit a: no"),
        (UsageError("no", parameter="reports"), "a.sqlite", "reports: no"),
    ],
)
def test_errors_repeat_what_was_typed(error: UsageError, typed: str, message: str) -> None:
    assert spell(error, typed.split()) == message


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("translate a b -j 0", "-j 0: must be at least 1"),
        ("a b --jobs=x", "--jobs x: write a whole number"),
        ("a b --stack-depth 1.5", "--stack-depth 1.5: write a whole number"),
        ("slurm --nodes -1", "--nodes -1: must be at least 1"),
        ("slurm --time-limit a#b", "--time-limit a#b: must be one word, without quotes"),
        ("compare a -- b --fail-over x", "--fail-over x: write a percentage, like 5%"),
        ("a b --min-duration a=1s --min-duration b", "--min-duration a=1s b: write SOURCE=TIME, like cuda_api=10us"),
        ("a b --memory 2", "--memory 2: write a size with a unit (K, M, G, T), like 2G"),
        ("summary a --time 200ms:100ms", "--time 200ms:100ms: FROM is after TO"),
    ],
)
def test_the_program_names_the_option_as_it_was_typed(tmp_path: Path, typed: str, message: str) -> None:
    done = run(*typed.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"nsys2prv-ng: error: {message}\n")


def test_remedies_name_the_option_or_the_keyword() -> None:
    error = TranslationError("out.prv: exists already", see=("force", "jobs"))
    assert spell(error) == "out.prv: exists already (see --force, --jobs)"
    assert str(error) == "out.prv: exists already (see force, jobs)"


@pytest.mark.slow
def test_only_the_command_line_spells_options() -> None:
    """Errors and warnings below cli/ name keywords (`see`), so that they suit the calls in Python as well.

    Pages, and the lines of a summary or a comparison, may spell options: their readers use the command line.
    """
    of_calls = [options for options in CLASSES.values() if not issubclass(options, RecordingOptions)]
    flags = {option.flag for options in of_calls for option in list_options(options).values()}
    spelled = re.compile(rf"(?<![\w-])({'|'.join(sorted(flags))})(?![\w-])")
    described = {"job_script.py", "table.py", "words.py"}  # options of Slurm and nsys; sentences of a summary
    package = Path(nsys2prv_ng.__file__).parent
    read = (
        "cli",
        "html",
        "options",
        "summary/text.py",
        "summary/answer",
        "comparison/result.py",
        "comparison/sentences.py",
        "text/layout.py",
    )
    found = []
    for file in package.rglob("*.py"):
        if file.name in described or any(file.is_relative_to(package / room) for room in read):
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found += [
            f"{file.name}:{node.lineno}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
            if spelled.search(node.value)
        ]
    assert found == []


def test_every_field_is_an_option_or_for_programs_only() -> None:
    for options in CLASSES.values():
        fields = {field.name for field in dataclasses.fields(options)}
        assert fields - set(list_options(options)) <= {"progress", "command"}
