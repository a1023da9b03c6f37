"""Options of commands, as they are made from the declared ones and read back."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest
import typer.main

import nsys2prv_ng
from nsys2prv_ng.bundled.job_script import ScriptOptions
from nsys2prv_ng.cli.app import app
from nsys2prv_ng.cli.options import collect_options, find_flag, spell
from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.options.calls import (
    CheckOptions,
    CompareOptions,
    InspectOptions,
    MergeOptions,
    ShardOptions,
    SummaryOptions,
    TranslateOptions,
)
from nsys2prv_ng.options.kinds import File, Files, WordOrFile
from nsys2prv_ng.text.option import Flag, list_options
from tests.cli.program_runs import run

CLASSES = {
    "translate": TranslateOptions,
    "summary": SummaryOptions,
    "compare": CompareOptions,
    "inspect": InspectOptions,
    "check": CheckOptions,
    "shard": ShardOptions,
    "merge": MergeOptions,
    "slurm": ScriptOptions,
}


def type_nothing(options: type) -> dict[str, object]:
    return {name: False if isinstance(option, Flag) else None for name, option in list_options(options).items()}


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
    assert collect_options(options, type_nothing(options)) == options()


def test_typed_texts_become_values() -> None:
    typed = type_nothing(TranslateOptions) | {
        "sources": "kernels,nvtx",
        "derived": True,  # --no-derived
        "time": "1s:",
        "ranks": "0-2",
        "min_duration": ["nvtx=1ms"],
        "memory": "1G",
        "osrt_min": "0",
        "strict": True,
    }
    assert collect_options(TranslateOptions, typed) == TranslateOptions(
        sources=("kernels", "nvtx"),
        derived=False,
        time=(10**9, None),
        ranks=frozenset({0, 1, 2}),
        min_duration={"nvtx": 10**6},
        memory=2**30,
        osrt_min=0,
        strict=True,
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("time", "2s:1s", "--time 2s:1s: FROM is after TO"),
        ("time", "2s:2s", "--time 2s:2s: FROM and TO are the same"),
        ("time", "2s", "--time 2s: write FROM:TO with units, like 1.5s:2s, :800ms or 2s:, or gpu"),
        ("ranks", "x", "--ranks x: 'x' is not a number or range such as 0-3"),
        ("kernel_names", "long", "--kernel-names long: must be short or demangled"),
        ("stack_depth", 0, "--stack-depth 0: must be at least 1"),
        ("steps", "5:3", "--steps 5:3: FIRST is after LAST"),
        ("min_duration", ["nvtx"], "--min-duration nvtx: write SOURCE=TIME, like cuda_api=10us"),
        ("memory", "2", "--memory 2: write a size with a unit (K, M, G, T), like 2G"),
    ],
)
def test_errors_name_the_option_and_what_was_typed(name: str, text: object, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        collect_options(TranslateOptions, type_nothing(TranslateOptions) | {name: text})
    assert spell(raised.value) == message


PATHS = {File: "", WordOrFile: "", Files: ["given", ""]}
"""Kinds of options that are paths, with an empty one."""


@pytest.mark.parametrize("command", CLASSES)
def test_an_empty_path_is_an_error(command: str) -> None:
    """It would be the current folder."""
    options = CLASSES[command]
    for name, option in list_options(options).items():
        if type(option) in PATHS:
            with pytest.raises(UsageError) as raised:
                collect_options(options, type_nothing(options) | {name: PATHS[type(option)]})
            typed = " given " if isinstance(option, Files) else ""
            assert spell(raised.value) == f"{find_flag(name)}{typed}: must not be empty"


@pytest.mark.parametrize(
    ("command", "flags"),
    {
        "translate": {"--tmp", "--align-report", "--labels-from", "--stats"},
        "summary": {"--tmp", "--html", "--save", "--talp"},
        "compare": {"--tmp", "--html"},
        "check": {"--cfg"},
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
        ("merge --part -1 a b", "--part -1: must be at least 0"),
        ("compare a -- b --fail-over 5", "--fail-over 5: write a percentage, like 5%"),
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
    flags = {option.flag for options in CLASSES.values() for option in list_options(options).values()}
    spelled = re.compile(rf"(?<![\w-])({'|'.join(sorted(flags))})(?![\w-])")
    described = {"job_script.py", "words.py", "mfu.py"}  # options of Slurm and nsys; sentences of a summary
    package = Path(nsys2prv_ng.__file__).parent
    read = ("cli", "html", "options", "summary/text.py", "summary/answer", "comparison/result.py", "text/labelled.py")
    found = []
    for file in package.rglob("*.py"):
        if file.name in described or any(file.is_relative_to(package / room) for room in read):
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        docstrings = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)}
        found += [
            f"{file.name}:{node.lineno}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in docstrings
            if spelled.search(node.value)
        ]
    assert found == []


def test_every_field_is_an_option_or_for_programs_only() -> None:
    for options in CLASSES.values():
        fields = {field.name for field in dataclasses.fields(options)}
        assert fields - set(list_options(options)) <= {"progress", "command"}
