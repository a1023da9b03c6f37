"""The language of changes: every form, and text that is none."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng import what_if
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.changes import Change, parse_changes
from nsys2prv_ng.text.names import LABEL_LENGTH, quote_name
from tests.conftest import SAMPLES

FORMS = {
    "range 'data loading' = 0": Change(what.RANGE, "data loading"),
    "range 'forward' * 0.5": Change(what.RANGE, "forward", 0.5),
    "call 'cudaFree' = 0": Change(what.CALL, "cudaFree"),
    "call 'cuda*' * 2": Change(what.CALL, "cuda*", 2.0),
    "kernel 'gemm_?' * 0.25": Change(what.KERNEL, "gemm_?", 0.25),
    "class 'GEMM FP32' * 0.5 on rank 1": Change(what.CLASS, "GEMM FP32", 0.5, (1,)),
    'class "it\'s" = 0': Change(what.CLASS, "it's"),
    "rank 3 = median": Change(what.RANK, ranks=(3,)),
    "rank 0,2-3 = median": Change(what.RANK, ranks=(0, 2, 3)),
    "network = ideal": Change(what.NETWORK),
    "network * 2": Change(what.NETWORK, factor=0.5),
    "network within nodes = ideal": Change(what.NETWORK, what.WITHIN),
    "network between nodes * 4": Change(what.NETWORK, what.BETWEEN, 0.25),
    "network within node * 4 on ranks 0-1": Change(what.NETWORK, what.WITHIN, 0.25, (0, 1)),
    "host = ideal": Change(what.HOST),
    "host * 0.5 on rank 0": Change(what.HOST, factor=0.5, ranks=(0,)),
    "copies = 0": Change(what.COPIES),
    "copies * 3 on ranks 1,2": Change(what.COPIES, factor=3.0, ranks=(1, 2)),
    "waits = 0": Change(what.WAITS),
}


@pytest.mark.parametrize("text", FORMS)
def test_every_form(text: str) -> None:
    change = FORMS[text]
    assert parse_changes(text) == (change,)
    assert parse_changes(f"  {text.replace(' = ', '=').replace(' * ', '*')} ") == (change,)


HOSTILE = st.text(
    st.one_of(st.sampled_from("'\"\\*?[]`x =0\n\t \u202e\ud800"), st.characters(exclude_categories=())), min_size=1
) | st.sampled_from(
    ["' = 0", "a' = 0 and b", "\\'", "\\", "\\x41", "a  b", "float*", "operator?", "\n", "'\"", "\\U000e0041", "\\'\""]
)
FACTORS = st.floats(1e-9, 999_999) | st.sampled_from([0.0, 1 / 3, 1 / 49, 123456.7, 1.2345678])
RANKS = st.none() | st.sets(st.integers(0, 999), min_size=1).map(lambda ranks: tuple(sorted(ranks)))


@given(st.sampled_from(what.NAMED), HOSTILE, FACTORS, RANKS, HOSTILE)
def test_a_proposed_change_is_read_from_its_text_and_selects_one_name(target, name, factor, ranks, other) -> None:
    change = Change(target, what.escape_name(name), factor, ranks)
    text = str(change)
    assert parse_changes(text) == (change,)
    assert parse_changes(f"{text} and {text}; copies = 0") == (change, change, Change(what.COPIES))
    assert quote_name(text) == f"`{text}`" or len(text) > LABEL_LENGTH  # nothing is lost on a terminal
    assert change.label == name
    matches = what.compile_pattern(change.name)
    assert matches(name) and bool(matches(other)) == (other == name)


@given(HOSTILE, st.sampled_from("'\""), FACTORS)
def test_a_typed_change_means_the_same_after_it_was_saved(name, quote, factor) -> None:
    try:
        changes = parse_changes(f"kernel {quote}{name}{quote} * {factor:.18f}")
    except UsageError:
        return
    text = " and ".join(map(str, changes))
    assert parse_changes(text) == changes
    assert " and ".join(map(str, parse_changes(text))) == text


@given(st.floats(1e-6, 999_999))
def test_the_speed_of_a_network_is_kept(speed: float) -> None:
    [change] = parse_changes(f"network * {speed:.20f}")
    assert parse_changes(str(change)) == (change,)


@pytest.mark.parametrize(
    "text", ["network * 49", "network * 3", "kernel 'x' * 0.1234567", "call 'a' * 123456.7", "host * 0.000001"]
)
def test_what_is_typed_is_what_is_printed(text: str) -> None:
    assert str(parse_changes(text)[0]) == text


@pytest.mark.parametrize(
    ("pattern", "name", "is_found"),
    [
        *(("cuda*", "cudaFree", True), ("cuda*", "cuda\nFree", True), ("a?", "ab", True), ("a?", "a", False)),
        *(("a[b]*", "a[b]c", True), ("a[b]*", "ab", False), (r"f\*", "f*", True), (r"f\*", "fx", False)),
        *((r"f\**", "f*x", True), (r"f\**", "fx", False), (r"a\b", r"a\b", True), (r"a\\b", r"a\b", True)),
        *((r"a\x2ab", "a*b", True), (r"a\x2ab", "acb", False), (r"\u202e", "\u202e", True), ("a.c", "abc", False)),
    ],
)
def test_wildcards(pattern: str, name: str, is_found: bool) -> None:
    [change] = parse_changes(f"kernel '{pattern}' = 0")
    assert bool(what.compile_pattern(change.name)(name)) == is_found


@pytest.mark.parametrize(
    "text", ["kernel 'x' * 1e9", "host * 1000000", "copies * -1", "network * 1e-9", "range 'a' * .5"]
)
def test_a_factor_out_of_range_is_told_the_limits(text: str) -> None:
    with pytest.raises(UsageError, match="from 0 to 999999"):
        parse_changes(text)


def test_every_change_is_read_again_from_its_own_text() -> None:
    for change in FORMS.values():
        assert parse_changes(str(change)) == (change,)


@pytest.mark.parametrize("joint", [" and ", ";", " ; ", " and\t"])
def test_several_changes(joint: str) -> None:
    assert parse_changes(joint.join(FORMS)) == tuple(FORMS.values())


def test_names_may_contain_what_separates_changes() -> None:
    assert parse_changes("range 'a; b and c = 0 on rank 1' = 0") == (Change(what.RANGE, "a; b and c = 0 on rank 1"),)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", ";", "and", "range", "range 'a'", "range a = 0", "range 'a = 0", "range 'a\" = 0", "range 'a' = 1"),
        *("range 'a' * -1", "range 'a' * nan", "range 'a' * inf", "range 'a' * 1e9", "range 'a' * .5", "range 'a' * "),
        *(
            "network = 0",
            "network * 0",
            "network * 0.0",
            "network * 0.0000001",
            "host * 1000000",
            "network near = ideal",
            "host = 0",
            "copies = ideal",
        ),
        *("waits * 2", "waits = 0 on rank 1", "rank 1 = median on rank 1", "rank = median", "rank -1 = median"),
        *("rank 1 * 0.5", "host = ideal on rank", "host = ideal on rank a", "host = ideal host = ideal"),
        *("host = ideal andcopies = 0", "host = ideal and", "host = ideal;", "HOST = ideal", "kernel 'a' = 0x"),
        *("host = ideal on rank 3-1", "rank 3-1 = median", "host = ideal on rank 0-99999999999999999999"),
        *("rank 0-999999999999 = median", "host * 2 on rank " + "9" * 300, "range 'a' * " + "9" * 5000),
        *("rank " + "9" * 5000 + " = median", "rank 1234567 = median"),
        *("host = ideal\0", "range 'a' = 0\x1b[31m", "range 'a\nb' = 0 \n x", "x" * 100_000, "'" * 100_000),
        *("; ".join(["copies = 0"] * 65), "range 'a' * 1 " * 1000),
    ],
)
def test_text_that_is_no_change_is_refused_at_once(text: str) -> None:
    start = time.process_time()
    with pytest.raises(UsageError) as error:
        parse_changes(text)
    assert time.process_time() - start < 1
    assert len(str(error.value)) < 600 and str(error.value).isprintable()


@given(st.text(alphabet=st.one_of(st.sampled_from("range'\"=*0 1.;and-,network rank median ideal"), st.characters())))
def test_any_text_is_changes_or_refused(text: str) -> None:
    try:
        changes = parse_changes(text)
    except UsageError:
        return
    assert all(change.factor >= 0 for change in changes)


def test_as_many_changes_as_are_allowed() -> None:
    assert len(parse_changes("; ".join(["copies = 0"] * 64))) == 64


@pytest.mark.parametrize("text", ["x" * 100_000, "range 'a" * 20_000, f"rank {'9' * 5_000} = median"])
def test_errors_do_not_show_long_texts(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        what_if(sorted(SAMPLES.glob("mpi-4*.sqlite")), change=[text])
    line = str(raised.value)
    assert line.startswith("change: ") and len(line) < 1000
