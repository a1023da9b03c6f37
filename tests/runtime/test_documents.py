"""The pages of the docs that come with the program, and the words of their glossary."""

from __future__ import annotations

from nsys2prv_ng.runtime.documents import list_pages, read_glossary, read_page
from tests.conftest import REPOSITORY


def test_every_page_for_users_is_listed_once() -> None:
    pages = [path for path in (REPOSITORY / "docs").glob("*/*.md") if path.parent.name != "development"]
    assert sorted(list_pages().values()) == sorted(pages)
    assert read_page("glossary") == (REPOSITORY / "docs/reference/glossary.md").read_text()


def test_the_glossary_has_every_row_of_its_page() -> None:
    rows = [line.split(" | ") for line in read_page("glossary").splitlines() if line.startswith("| ")]
    words = [words.removeprefix("| ") for words, *_ in rows if words != "| word"]
    glossary = read_glossary()
    for word in words:
        first = word.replace("`", "").split(" (")[0].split(", ")[0]
        assert glossary[first] and "](" not in glossary[first]
    assert len(glossary) >= len(words) > 50


def test_words_side_by_side_share_a_meaning_and_old_words_name_the_new_one() -> None:
    glossary = read_glossary()
    assert glossary["algbw"] == glossary["busbw"]
    assert glossary["moving_ns"] == glossary["moving"] == f"data transfer: {glossary['data transfer']}"
