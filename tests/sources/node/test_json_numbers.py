"""Numbers of members of JSON objects, against Python's json."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsys2prv_ng.sources.node.json_numbers import find_numbers
from tests.examples import examples

pytestmark = pytest.mark.slow

NUMBER = re.compile(r"\s*(-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\s*", re.ASCII)


def found_in(texts: list[str | None], names: list[str]) -> list[list[str | None]]:
    """What is found of each name in all texts, which are in an array behind and before others."""
    array = pa.array([None, '{"v":1}', *texts, '{"v":2}'])
    rows = np.arange(1, len(texts) + 1)
    found = find_numbers(array.slice(1), rows, names)
    for each in found:
        each.written.validate(full=True)
        expected = [number is not None and not re.fullmatch("-?[0-9]+", number) for number in each.written.to_pylist()]
        assert each.real.tolist() == expected
    return [each.written.to_pylist() for each in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((f'{{"v":{number}}}', number) for number in ("0", "-5", "1e3", "2.50", "-1.5E-07", "18446744073709551616")),
        *((f'{{"u":0 , "v" :\t"{number}"\n}} ', number) for number in ("0", "-5", "1e3", "2.50", "007")),
        ('{"v":" 5 "}', "5"),
        *(
            (f'{{"v":"{value}"}}', None)
            for value in ("10.0.0.1", "0x12", "2024-01-02", "12 MB", "+5", ".5", "1.", "1e")
        ),
        *((f'{{"v":{value}}}', None) for value in ("null", "true", "[7]", '{"v":7}', '""', "-", "NaN", '"5\\n"', "5x")),
        *(
            (f'{{"o":{value},"v":8}}', "8")
            for value in ('{"v":7}', '[{"v":7}]', '"\\"v\\":7"', '"},{[\\\\"', '{"a":"}"}')
        ),
        *((text, None) for text in ("", " ", "{", "{}", "7", '[{"v":7}]', '{"v":7', '{"v":7,', '{"v":7}}', '{"v":7,}')),
        *(
            (text, None)
            for text in ('{"v"', '{"v":', '{"v', '{"v\\', '{"v":"7', '{"v" 7}', '{"v":7 8}', "{v:7}", '{"v":,}')
        ),
        ('{"x\\"v":7}', None),
        ('{"\\u0076":7}', "7"),
        ('{"\\u00":7}', None),
        ('{"\\ud8', None),
        ('{"v":1,"v":2}', "2"),
        ('{"v":1,"v":"x"}', None),
        (None, None),
    ],
)
def test_number_or_none(text: str | None, expected: str | None) -> None:
    assert found_in([text], ["u2", "v"])[1] == [expected]


TEXT = st.text(st.characters(codec="utf-8"), max_size=4) | st.sampled_from(
    ["a/b", "café", "\U0001f600", '"', "\\", '":7,"']
)
LEAF = (
    st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.booleans()
    | st.none()
    | TEXT
    | st.integers().map(str)
    | st.floats().map(str)
    | st.sampled_from(["10.0.0.1", "0x12", "2024-01-02", "12 MB", "1e5", "-0", "01"])
)
VALUE = st.recursive(
    LEAF, lambda each: st.lists(each, max_size=3) | st.dictionaries(TEXT, each, max_size=3), max_leaves=5
)


def number_of(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    matched = NUMBER.fullmatch(value if isinstance(value, str) else json.dumps(value))
    return matched[1] if matched and not re.search(r"[^ \t\n\r0-9.eE+-]", matched[0]) else None


@settings(max_examples=examples(400), deadline=None)
@given(
    st.lists(st.dictionaries(TEXT, VALUE, max_size=4), min_size=1, max_size=4),
    st.lists(TEXT, min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.booleans(),
)
@example([{"o": {"v": 7}, "v": 8}], ["v"], True, None, True)
def test_any_objects(objects: list[dict], more: list[str], ascii_only: bool, indent: int | None, slashes: bool) -> None:
    """The values that are found are those that were put in, however the object is written."""
    texts = [json.dumps(each, ensure_ascii=ascii_only, indent=indent) for each in objects]
    if slashes:  # as nsys does
        texts = [text.replace("/", "\\/") for text in texts]
    names = list(dict.fromkeys([*(name for each in objects for name in each), *more]))
    # Control characters in a string are escaped, so white space is only what no escape makes.
    expected = [[escaped_number(each.get(name)) for each in objects] for name in names]
    assert found_in(texts, names) == expected


def escaped_number(value: object) -> str | None:
    return None if isinstance(value, str) and re.search(r"[\t\n\r]", value) else number_of(value)


@settings(max_examples=examples(200), deadline=None)
@given(st.dictionaries(TEXT, VALUE, min_size=1, max_size=4), st.data())
def test_what_is_cut_or_changed_is_never_a_wrong_number(members: dict, data: st.DataObject) -> None:
    """Of a text that is damaged either what json finds in it is found, or nothing is where json finds no object."""
    text = json.dumps(members, ensure_ascii=False)
    whole = text[: data.draw(st.integers(0, len(text) - 1))]
    assert found_in([whole], list(members)) == [[None]] * len(members)
