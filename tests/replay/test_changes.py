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


def test_every_change_is_read_again_from_its_own_text() -> None:
    for change in FORMS.values():
        if "'" not in change.name:
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
