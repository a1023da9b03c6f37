"""Words of the glossary in texts: each once, with its meaning, and texts stay as they were."""

from __future__ import annotations

import pytest

from nsys2prv_ng.html.terms import Terms
from nsys2prv_ng.runtime.documents import read_glossary

GLOSSARY = {"wait": "before it starts", "wait time": "inside", "GPU time": "of all GPUs", "rank": "a number"}


def test_a_word_has_its_meaning_at_its_first_place_and_the_longest_counts() -> None:
    terms = Terms(GLOSSARY)
    found = [each for text in ("Wait time of rank 1", "its wait time, two waits") for each in terms.split(text)]
    assert [each for each in found if each[1]] == [("Wait time", "word-1"), ("waits", "word-2")]
    assert terms.meanings == {"wait time": "inside", "wait": "before it starts"}


@pytest.mark.parametrize(
    "text", ["await waiting", "\u017ftep \u212a wait\u017f", "", "GPU time, GPU TIMES", "a.b|c(wait)"]
)
def test_texts_stay_as_they_were(text: str) -> None:
    """Letters that only Unicode takes for those of a word (the long s, the Kelvin sign) are none of it."""
    for glossary in (GLOSSARY, read_glossary()):
        assert "".join(piece for piece, _ in Terms(glossary).split(text)) == text
    assert not any(key for _, key in Terms(GLOSSARY).split("await waiting"))
