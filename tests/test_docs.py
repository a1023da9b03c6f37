"""The documentation against the program."""

from __future__ import annotations

import ast
import csv
import importlib.util
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import typer.main

from cfgs.generate.workspaces import MENUS
from nsys2prv_ng.bundled.presets import list_presets
from nsys2prv_ng.cli.app import app
from nsys2prv_ng.sources.registry import DERIVED, SOURCES
from nsys2prv_ng.version import __version__
from tests.cli.program_runs import run
from tests.conftest import HAS_LARGE_REPORTS, REPORTS
from tests.report_sets import COVERING
from tests.tiers import cases

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OTHERS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "cfgs/README.md"]
PAGES = [*OTHERS, *sorted(DOCS.rglob("*.md"))]
COMMANDS = typer.main.get_command(app).commands


def load_script(name: str) -> ModuleType:
    """Import a program of docs/."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look
    sys.path.insert(0, str(DOCS))  # where programs find the modules beside them
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(DOCS))
    return module


QUOTES = load_script("quotes")
EXERCISES = load_script("exercises")
NOTEBOOK = load_script("notebook")


def words_of(command: str) -> dict[str, set[str]]:
    """Long and short words of each option of a command."""
    return {option.name: set(option.opts) for option in COMMANDS[command].params if option.param_type_name == "option"}


def list_option_rows(text: str) -> list[set[str]]:
    """Return the words in the first cell of each row of tables of options."""
    rows = re.findall(r"^\| (`-.*?`) \|", text, re.MULTILINE)
    return [set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", row)) for row in rows]


def documented(page: str) -> dict[str, list[set[str]]]:
    """By command: the words of each of its rows in tables of options, those that it shares with others included."""
    parts = re.split(r"^## ", (DOCS / page).read_text(), flags=re.MULTILINE)[1:]
    sections = {part.splitlines()[0].strip(): part for part in parts}
    shared = re.split(r"^Of (?=`)", sections.pop("Options of several commands"), flags=re.MULTILINE)[1:]
    options = {name: list_option_rows(text) for name, text in sections.items()}
    for group in shared:
        for name in re.findall(r"`([\w-]+)`", group.splitlines()[0]):
            options[name] += list_option_rows(group)
    return options


# ---- pages that programs write ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", ["event_types", "commands", "schemas", "bottlenecks", "tables"])
def test_pages_that_programs_write_are_as_they_write_them(script: str) -> None:
    command = [sys.executable, str(DOCS / f"{script}.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), f"python docs/{script}.py writes it"


def test_event_types_are_listed_once() -> None:
    page = (DOCS / "reference/event-types.md").read_text()
    assert len(re.findall(r"\b9101\b", page)) == len(re.findall(r"\b63000006\b", page)) == 1
    with (DOCS / "reference/event-values.csv").open(encoding="utf-8") as file:
        values = {(row["type"], row["value"]): row["label"] for row in csv.DictReader(file)}
    assert values["50000002", "10"] == "MPI_Allreduce"
    assert values["63000400", "7"] == "Memory, compute and communication"


def test_every_command_and_option_is_documented_once_and_no_other() -> None:
    sections = documented("reference/commands.md")
    assert set(sections) - {"The program"} == set(COMMANDS)
    for command in COMMANDS:
        expected = [words for name, words in words_of(command).items() if name != "help"]
        assert sorted(map(sorted, sections[command])) == sorted(map(sorted, expected)), command


def run_within(command: str, folder: Path) -> str:
    """Run a command as the program of the quotes does, within this process."""
    for reports in (ROOT / "samples", EXERCISES.find_exercises()):
        (folder / reports.name).symlink_to(reports)
    done = run(*EXERCISES.expand_words(command, folder), cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reports", "pages"),
    [("samples", "*.md"), ("exercises", "comparing.md"), pytest.param("exercises", "*.md", marks=pytest.mark.all_sets)],
)
def test_quoted_output_is_what_the_program_prints(reports: str, pages: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of the same reports quote the same commands, which then run once."""
    texts = {page: page.read_text() for page in PAGES}
    quoting = {page: text for page, text in texts.items() if re.search(f"<!-- prints: .* {reports}/", text)}
    assert len(quoting) > 2
    monkeypatch.setattr(QUOTES, "run_command", run_within)
    for page, text in quoting.items():
        if not page.match(pages):
            continue
        found = QUOTES.mask_times(QUOTES.fill_page(text))
        assert found == QUOTES.mask_times(text), f"python docs/quotes.py writes {page.name}"


def test_words_choose_the_only_paragraph_of_a_quote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QUOTES, "run_command", lambda command, folder: "Gaps\n1\n2\n\nNCCL time\n3\n\nNCCL calls\n4\n")
    page = "<!-- prints: nsys2prv-ng summary made.sqlite | {} -->\n```\nold\n```\n"
    assert QUOTES.fill_page(page.format("NCCL calls")).endswith("```\nNCCL calls\n4\n```\n")
    assert QUOTES.fill_page(page.format("Gaps | 2")).endswith("```\nGaps\n1\n```\n")
    for words in ("NCCL", "Waits"):  # of two paragraphs, and of none
        with pytest.raises(ValueError, match=f"paragraphs have '{words}'"):
            QUOTES.fill_page(page.format(words))


# ---- commands --------------------------------------------------------------------------------------------------------


def list_blocks(text: str, before: str = "") -> list[str]:
    """The blocks of commands of a page: fenced ones that stand after a line, or those and the indented ones."""
    blocks = re.findall(r"^([^\n]*)\n```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    fenced = [block for line, language, block in blocks if language in ("", "sh") and line.startswith(before)]
    return fenced if before else fenced + re.findall(r"^\n((?: {4}.*\n)+)", text, re.MULTILINE)


def list_commands(text: str) -> list[list[str]]:
    """The words of each command of the program in the blocks of a page, patterns (REPORT...) left out."""
    lines = re.findall(r"^ *nsys2prv-ng (.*)$", "\n".join(list_blocks(text)).replace("\\\n", " "), re.MULTILINE)
    lines = [line for line in lines if not re.search(r"\[OPTION|[A-Z]\.\.\.", line)]
    # The one substitution in use.
    lines = [re.sub(r"\$\(echo '(.*?)' \| tr -d ', '\)", lambda m: re.sub("[, ]", "", m[1]), line) for line in lines]
    words = [shlex.split(line, comments=True) for line in lines]
    return [list(itertools.takewhile(lambda word: word[:1] not in ("|", ">", "&", ";"), line)) for line in words]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_of_pages_are_understood(page: Path) -> None:
    for words in list_commands(page.read_text()):
        name, *arguments = words if words[0] in COMMANDS else ["translate", *words]
        COMMANDS[name].make_context(name, arguments)  # raises an error of usage


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_shell_blocks_of_pages_have_no_errors_of_syntax(page: Path) -> None:
    if blocks := re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        done = subprocess.run(["bash", "-n"], input="\n".join(blocks), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


RUN = "<!-- runs -->"
LONG = [DOCS / "guides/hpc-centres.md", DOCS / "guides/paraver.md"]
"""Pages whose marked commands every push leaves out."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    cases([page for page in PAGES if RUN in page.read_text()], push={*PAGES} - {*LONG}),
    ids=lambda page: page.name,
)
def test_marked_commands_of_pages_run(page: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin/nsys2prv-ng"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nsys2prv_ng "$@"\n')
    program.chmod(0o755)
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "PATH": f"{program.parent}:/usr/bin:/bin",
    }
    script = "\n".join(list_blocks(page.read_text(), RUN))
    if ".tar.xz" in script and shutil.which("xz") is None:
        pytest.skip("tar needs xz, which is not installed")
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail"],
        input=script,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0, done.stderr


# ---- pictures --------------------------------------------------------------------------------------------------------


def test_pictures_are_shown_and_small() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    pictures = list((DOCS / "pictures").iterdir())
    assert {picture.name for picture in pictures} == set(re.findall(r"pictures/([\w.-]+)\)", text))
    assert [picture.name for picture in pictures if picture.stat().st_size > 100_000] == []


def test_a_program_takes_each_picture() -> None:
    tables = [load_script(name).PICTURES for name in ("photograph", "photograph_page")]
    # Importing it needs matplotlib.
    drawn = re.findall(r'^[A-Z]+ = .*/(\w+)\.png"$', (ROOT / "benchmarks/chart.py").read_text(), re.MULTILINE)
    taken = [*itertools.chain(*tables), *drawn, *NOTEBOOK.list_pictures(NOTEBOOK.read_notebook())]
    assert sorted(taken) == sorted(path.stem for path in (DOCS / "pictures").glob("*.png"))


def test_pictures_are_of_reports_that_exist() -> None:
    photograph = load_script("photograph")
    for of_run in {picture.run for picture in photograph.PICTURES.values()}:
        names = [Path(path).name for path in photograph.list_reports(of_run)]
        if of_run.startswith("whatif/"):
            assert names == [f"{Path(of_run).name}.rank0.sqlite"] * HAS_LARGE_REPORTS
        else:
            ranks = 1 if re.search("/(w|jax)-", of_run) else 4
            assert names == [f"{Path(of_run).name}.rank{rank}.sqlite" for rank in range(ranks)]


def test_pictures_are_of_windows_that_their_presets_have() -> None:
    photograph = load_script("photograph")
    cfgs = {preset.name: preset.path.read_text() for preset in list_presets()}
    for name, picture in photograph.PICTURES.items():
        for window in set(picture.windows) - {photograph.Window(photograph.MAIN)}:
            titles = re.findall(r"^(?:window_name|Analyzer2D\.Name:) (.*)$", cfgs[picture.preset], re.MULTILINE)
            found = [title for title in titles if re.match(window.title, f"{title} @ x.prv")]
            assert len(found) == 1, (name, window.title, found)


def test_the_menus_of_wxparaver_are_listed() -> None:
    menus = re.findall(r"^\| (nsys: .*?) \|", (DOCS / "guides/paraver.md").read_text(), re.MULTILINE)
    assert menus == [menu.name for menu in MENUS]


# ---- reports ---------------------------------------------------------------------------------------------------------

REPORTS_OF_SITE = EXERCISES.find_html_commands()
CASES = sorted(page.name for page in (DOCS / "guides").glob("*.md") if EXERCISES.find_html_commands(page.name))


def test_exercises_are_unpacked_once_without_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "report"
    report.write_bytes(b"as recorded")
    (tmp_path / "samples").mkdir()
    with tarfile.open(tmp_path / "samples/exercises.tar.xz", "w:xz") as archive:
        archive.add(report, "exercises/run.rank0.sqlite")
    monkeypatch.setattr(EXERCISES, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", "")
    with ThreadPoolExecutor(4) as workers:
        folders = set(workers.map(lambda _: EXERCISES.find_exercises(), range(4)))
    assert folders == {tmp_path / "exercises"}
    unpacked = tmp_path / "exercises/run.rank0.sqlite"
    assert unpacked.read_bytes() == b"as recorded"
    unpacked.write_bytes(b"changed by a reader")
    EXERCISES.find_exercises()
    assert unpacked.read_bytes() == b"changed by a reader"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exercises", "report", "samples"]


@pytest.mark.parametrize("page", CASES)
def test_reports_of_the_site_are_linked(page: str) -> None:
    linked = re.findall(r"\]\(\.\./reports/([^)]+)\)", (DOCS / "guides" / page).read_text())
    assert sorted(linked) == sorted(EXERCISES.find_html_commands(page))


def test_every_case_study_has_reports_in_the_site() -> None:
    assert CASES == ["case-studies.md", "exercises.md"]
    assert len(REPORTS_OF_SITE) == sum(len(EXERCISES.find_html_commands(page)) for page in CASES)  # no name twice


# ---- links and mentions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        if path.startswith("../reports/"):  # made with the site
            assert Path(path).name in REPORTS_OF_SITE, target
            continue
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        if DOCS in page.parents:
            assert DOCS in linked.parents, f"{target}: not in the site"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}, (
                target
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_options_that_pages_speak_of_exist(page: Path) -> None:
    known = set().union(*(words for command in COMMANDS for words in words_of(command).values())) | {
        "--version",
        "--help",
        "--install-completion",
        "--show-completion",
    }
    ours = "\n".join(re.findall(r"`nsys2prv-ng [^`]*`|^ *nsys2prv-ng .*$", page.read_text(), re.MULTILINE))
    ours = re.sub(r" -- .*", "", ours)
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", ours)) <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_pages_speak_of_exist(page: Path) -> None:
    rooms = "nsys2prv_ng|tests|cfgs|samples|benchmarks|docs"
    modules = [path.name for path in (ROOT / "nsys2prv_ng").iterdir() if path.is_dir()]
    for path in re.findall(rf"`((?:{rooms}|{'|'.join(modules)})/[\w./-]*)`", page.read_text()):
        folders = [ROOT, ROOT / "nsys2prv_ng", ROOT / "cfgs/generate", ROOT / "cfgs"]
        assert any((folder / path).exists() or list(folder.glob(f"{path.rstrip('/')}.*")) for folder in folders), path


DEVELOPERS_PAGES = [ROOT / "CONTRIBUTING.md", *sorted((DOCS / "development").glob("*.md"))]
CODE = [
    path for folder in ("nsys2prv_ng", "cfgs", "tests", "docs", "benchmarks") for path in (ROOT / folder).rglob("*.py")
]
SETTINGS = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"
"""Constants, and variables of the environment, which scripts name too."""


FILE_OR_START = re.compile(r"\.(md|png|py|toml|xml|yml)$|_$")


@cache
def list_definitions() -> frozenset[str]:
    """What the code defines: modules, classes, functions, parameters, attributes, variables, and keys of keywords."""
    defined = {path.stem for path in CODE} | {path.parent.name for path in CODE}
    for path in CODE:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                    defined.add(name)
                case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                    defined.add(name)
    return frozenset(defined)


@cache
def read_scripts() -> str:
    return "".join(path.read_text() for path in [*(ROOT / ".ci").iterdir(), *CODE])


def list_spoken_names(page: Path) -> set[str]:
    """The names in `backquotes` that are of code: with a call, a dot, an underscore or a capital within."""
    quoted = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.S | re.M))
    names = [re.fullmatch(r"@?\.?([A-Za-z_][\w.]*)(\(.*\))?", text) for text in quoted]
    found = [(match[1], match[2]) for match in names if match and not FILE_OR_START.search(match[1])]
    return {name for name, call in found if call or re.search(r"[._]|[a-z][A-Z]|^[A-Z]", name)}


@pytest.mark.slow
@pytest.mark.parametrize("page", DEVELOPERS_PAGES, ids=lambda page: page.name)
def test_names_that_pages_for_developers_speak_of_are_defined(page: Path, pytestconfig: pytest.Config) -> None:
    defined, standard = list_definitions(), {"PWD", "map", "str", "int", "len", "print", "None", "Literal", "CI"}
    standard |= {Path(name).name for name in COVERING}  # real reports, beside the repository or not
    standard |= {path.stem.partition(".")[0] for path in REPORTS.rglob("*.sqlite")}
    standard |= {re.split(r"\W", marker)[0] for marker in pytestconfig.getini("markers")}
    for name in list_spoken_names(page):
        if (re.fullmatch(SETTINGS, name) and name in read_scripts()) or name.startswith("pytest."):
            continue
        missing = {part for part in name.split(".") if part} - defined - standard
        assert not missing, (page.name, name)


def test_a_name_that_is_gone_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`_make_plan`, `job.workers`, `JobSummary.load`, `open_job(reports)`, `--time`, `a sentence of words`"
    )
    assert list_spoken_names(page) == {"_make_plan", "job.workers", "JobSummary.load", "open_job"}
    assert not {"_make_plan", "workers_of_a_job"} & list_definitions() and "open_job" in list_definitions()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_presets_that_pages_speak_of_exist(page: Path) -> None:
    names = {preset.name for preset in list_presets()}
    folders = "|".join({name.partition("/")[0] for name in names})
    spoken_of = re.findall(rf"`(?:presets/)?((?:{folders})/[\w-]+)(?:\.cfg)?`", page.read_text())
    assert set(spoken_of) - names - {path for path in spoken_of if (ROOT / "nsys2prv_ng" / path).exists()} == set()


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_the_table_of_sources_has_every_source() -> None:
    table = re.findall(r"^\| `(\w+)` \| .*\| .*\|$", (DOCS / "reference/sources.md").read_text(), re.MULTILINE)
    assert sorted(table) == sorted(source.name for source in (*SOURCES, *DERIVED))


def test_the_map_has_every_room() -> None:
    contracts = (ROOT / "pyproject.toml").read_text()
    contract = contracts.partition('containers = ["nsys2prv_ng"]')[2].partition("layers = [")[2].partition("]")[0]
    floors = [set(re.findall(r"\w+", floor)) for floor in re.findall(r'"(.*?)"', contract)]
    found: list[set[str]] = []
    for number, rooms in re.findall(
        r"^\| (\d*) ?\| (`.*?`) \|", (DOCS / "development/architecture.md").read_text(), re.MULTILINE
    ):
        if number:
            assert int(number) == len(found) + 1
            found.append(set())
        found[-1] |= set(re.findall(r"`(\w+?)(?:\.py|/)`", rooms))
    assert found == floors


def test_every_page_is_in_the_navigation_and_on_the_first_page() -> None:
    navigation, first = (ROOT / "mkdocs.yml").read_text(), (DOCS / "index.md").read_text()
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert set(re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)) == pages
    linked = set(re.findall(r"\(([a-z]\S+?\.md)\)", first))
    assert linked <= pages
    assert {page for page in pages if not page.startswith("development/")} - {"index.md"} <= linked


def test_the_readme_is_short_and_leads_to_the_first_page() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "(docs/index.md)" in readme and len(readme.splitlines()) <= 100


def test_the_citation_is_of_this_version() -> None:
    fields = dict(re.findall(r"^([a-z-]+): (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    assert fields["version"] == __version__
    assert {"cff-version", "message", "title", "type", "license"} <= set(fields)


def test_troubleshooting_explains_messages_that_exist() -> None:
    text = "\n".join(
        constant for path in (ROOT / "nsys2prv_ng").rglob("*.py") for constant in list_texts(path.read_text())
    )
    parts = re.split(r"^## ", (DOCS / "guides/troubleshooting.md").read_text(), flags=re.MULTILINE)[1:]
    tables = [part for part in parts if part.startswith(("Reports", "Events that", "Memory"))]
    messages = [message for table in tables for message in re.findall(r"^\| (.+?) \|", table, re.MULTILINE)[1:]]
    assert len(messages) > 25
    assert [message for message in messages if any(piece.strip() not in text for piece in message.split("..."))] == []


def list_texts(source: str) -> list[str]:
    """The texts of a module; f-strings without what they show."""
    texts = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
        elif isinstance(node, ast.JoinedStr):
            texts.append(
                "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)  # type: ignore
            )
    return texts


# ---- JSON ------------------------------------------------------------------------------------------------------------


def json_fields(section: str) -> set[str]:
    """Names in the first column of a section's table in the reference of JSON outputs."""
    text = (DOCS / "reference/json.md").read_text()
    part = next(part for part in re.split(r"^## ", text, flags=re.MULTILINE) if part.startswith(section))
    cells = re.findall(r"^\| (`.*?`) \|", part, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize("section", ["Stats", "Summary", "Comparison", "Inspection", "What-if"])
def test_json_outputs_have_the_documented_fields(section: str) -> None:
    """Real outputs have the fields of their schemas (tests/test_schemas.py)."""
    schema = json.loads((DOCS / f"reference/schemas/{section.lower()}.json").read_text())
    assert set(schema["properties"]) == json_fields(section)
