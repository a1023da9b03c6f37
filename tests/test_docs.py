"""The documentation against the program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from nsys2prv_ng.cli.app import app
from nsys2prv_ng.sources import DERIVED, SOURCES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "cfgs/README.md"]
COMMANDS = typer.main.get_command(app).commands


def words_of(command: str) -> dict[str, set[str]]:
    """Long and short words of each option of a command."""
    return {each.name: set(each.opts) for each in COMMANDS[command].params if each.param_type_name == "option"}


def documented() -> dict[str, list[set[str]]]:
    """By command: the words in the first cell of each row of its table of options."""
    sections = re.split(r"^## ", (ROOT / "docs/reference/options.md").read_text(), flags=re.MULTILINE)[1:]
    found = {}
    for section in sections:
        rows = re.findall(r"^\| (`-.*?`) \|", section, re.MULTILINE)
        found[section.splitlines()[0].strip()] = [set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", row)) for row in rows]
    return found


def test_every_command_and_option_is_documented_and_no_other() -> None:
    pages = documented()
    assert set(pages) == set(COMMANDS)
    for command, rows in pages.items():
        expected = set().union(*words_of(command).values()) - {"--help"}
        assert set().union(*rows) == expected, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}, (
                target
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_that_pages_speak_of_exist(page: Path) -> None:
    known = set().union(*(words for command in COMMANDS for words in words_of(command).values())) | {"--version"}
    ours = "\n".join(re.findall(r"`nsys2prv-ng [^`]*`|^ *nsys2prv-ng .*$", page.read_text(), re.MULTILINE))
    ours = re.sub(r" -- .*", "", ours)
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", ours)) <= known


def test_the_table_of_sources_has_every_source() -> None:
    table = re.findall(r"^\| `(\w+)` \| .*\| .*\|$", (ROOT / "docs/reference/sources.md").read_text(), re.MULTILINE)
    assert sorted(table) == sorted(source.name for source in (*SOURCES, *DERIVED))


def test_event_types_are_those_of_the_program() -> None:
    command = [sys.executable, str(ROOT / "docs/event_types.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert (ROOT / "docs/reference/event-types.md").read_text() == printed
    assert printed.count("\n| 9101 |") == 1


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if not re.search(rf": {page}$", text, re.MULTILINE)] == []
