"""Characters that a terminal does not show, whatever brings them there."""

from __future__ import annotations

import re
import shutil
import sqlite3
import sys
import unicodedata

import pytest

from nsys2prv_ng.errors import TranslationError, escape_unprintable
from nsys2prv_ng.html.page import clean
from nsys2prv_ng.inspection.text import escape_text
from nsys2prv_ng.text.names import clean_name
from tests.cli.program_runs import run
from tests.conftest import SAMPLES

FILLERS = re.compile(
    r"(HALFWIDTH )?HANGUL \w*\s?FILLER|BRAILLE PATTERN BLANK|COMBINING GRAPHEME JOINER|KHMER VOWEL INHERENT A[QA]"
    r"|(MONGOLIAN FREE )?VARIATION SELECTOR.*"
)
HIDDEN = "\u3164\u202e\u2066\U000e0041\u200b\x1b[31m\u2028"


def is_hidden(letter):
    """Whether it may do harm: by its category and name in the Unicode standard."""
    category = unicodedata.category(letter)
    if FILLERS.fullmatch(unicodedata.name(letter, "")):
        return letter not in "\ufe0e\ufe0f"
    return (category.startswith("C") and letter not in "\u200c\u200d") or category in ("Zl", "Zp")


def write_error(text):
    return str(TranslationError(text))


@pytest.mark.parametrize("escape", [escape_unprintable, clean_name, clean, escape_text, write_error])
def test_every_character(escape):
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        shown = escape(f"a{letter}b")
        assert not any(map(is_hidden, shown)), hex(code)
        if not is_hidden(letter) and unicodedata.category(letter) != "Zs":
            assert shown == f"a{letter}b" or escape is escape_text, hex(code)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A report with such characters in its names of ranges, kernels, processes and GPUs, and in its own."""
    path = tmp_path_factory.mktemp("hostile") / "r\u202e.sqlite"
    shutil.copy(SAMPLES / "single-graph.sqlite", path)
    with sqlite3.connect(path) as report:
        for table, column in (("StringIds", "value"), ("TARGET_INFO_GPU", "name")):
            is_text = f"typeof({column}) = 'text' and {column} not like 'cu%' and length({column}) > 2"
            report.execute(f"update {table} set {column} = {column} || ? where {is_text}", (HIDDEN,))
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["summary", "--details", "{report}"],
        ["what-if", "{report}"],
        ["inspect", "{report}"],
        ["compare", "--all", "{report}", "--", "{report}"],
        ["compare", "--markdown", "--all", "{report}", "--", "{report}"],
        ["{report}", "{folder}/o\u202e.prv", "--verbose", "--summary", "--force"],
        ["check", "{folder}/none\u202e.prv"],
        ["{folder}/none\u202e.sqlite", "o.prv"],
        ["help", "\u202e"],
        ["summary", "--\u202e"],
        ["summary", "--ranks", "\u202e", "{report}"],
        ["cfgs", "--install", "{folder}/c\u202e"],
        ["{report}\u202e", "--help"],
    ],
)
def test_every_command(hostile, tmp_path, words):
    done = run(*(word.format(report=hostile, folder=tmp_path) for word in words))
    text = (done.stdout + done.stderr).replace("\n", "")
    assert text and not any(map(is_hidden, text))
    assert "Traceback" not in text and "internal error" not in text


@pytest.mark.slow
def test_checks_of_a_trace(hostile, tmp_path):
    trace = tmp_path / "o\u202e.prv"
    assert run(hostile, trace).returncode == 0
    for option in ([], [tmp_path / "none\u202e.cfg"]):
        done = run("check", trace, *option)
        assert not any(map(is_hidden, (done.stdout + done.stderr).replace("\n", "")))
        assert option or "o?.prv: " in done.stdout


def test_what_was_printable_stays():
    kept = "\u05d0\u0645 \u00a0\u3000 \U0001f468\u200d\U0001f4bb \u2764\ufe0f e\u0301"
    assert escape_unprintable(kept) == kept


def test_letters_that_are_blank():
    assert (
        escape_unprintable("a\u3164b\u115fc\u1160d\uffa0e\u2800f\u034fg\u17b5h\u180ei\U000e0100j")
        == "a?b?c?d?e?f?g?h?i?j"
    )
