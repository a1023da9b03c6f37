"""The gate against captures with planted slowdowns, and against a simulation of its model."""

from __future__ import annotations

from dataclasses import replace
from math import log, log1p
from pathlib import Path

import numpy as np
import pytest

import nsys2prv_ng
from nsys2prv_ng.comparison.compare import compare_sides
from nsys2prv_ng.comparison.evidence import Shares, count_captures, find_quantile, weigh
from nsys2prv_ng.comparison.gate import judge, judge_runs, read_limit, rule
from nsys2prv_ng.comparison.model import Side
from nsys2prv_ng.comparison.sides import make_side
from tests.comparison.gate_captures import count_codes, read_captures
from tests.comparison.made import GPUS, MS, make_summary
from tests.conftest import Unpacked

_KINDS = {"gpu": "apart/gpu", "host": "turns/host", "mixed": "turns/mixed"}


@pytest.mark.parametrize("kind", ["gpu", "host", "mixed", "ddp"])
@pytest.mark.parametrize("size", [1, 2])
def test_unchanged_programs_raise_no_alarm(kind: str, size: int) -> None:
    """Captures of one state, in all choices: at most 5 % of each kind are called slower, whatever the limit."""
    states = [state for state in read_captures() if state.partition("/")[2].startswith(kind)]
    for limit in (0.03, 0.05, 0.1):
        codes = [count_codes(state, state, limit, size)[3] for state in states]
        assert sum(codes) / len(codes) <= 0.05


@pytest.mark.parametrize(
    ("kind", "percent", "limit", "size", "least", "most"),
    [
        ("gpu", 10, 0.05, 1, 1.0, 1.0),
        ("gpu", 20, 0.1, 1, 1.0, 1.0),
        ("host", 20, 0.1, 1, 0.25, 0.35),
        ("host", 20, 0.1, 2, 0.85, 0.95),
        ("host", 20, 0.1, 3, 0.95, 1.0),
        ("mixed", 20, 0.1, 1, 0.55, 0.65),
        ("mixed", 20, 0.1, 2, 0.8, 0.9),
        ("mixed", 20, 0.1, 3, 0.95, 1.0),
    ],
)
def test_slowdowns_of_twice_the_limit_are_found(
    kind: str, percent: int, limit: float, size: int, least: float, most: float
) -> None:
    """The shares in docs/guides/ci.md. None of them is ever called *not slower*."""
    planted = f"{_KINDS[kind]}-{'kernel' if kind == 'gpu' else 'host'}-{percent}"
    codes = count_codes(f"{_KINDS[kind]}-none-0", planted, limit, size)
    assert least <= codes[3] <= most
    assert codes[0] == 0


@pytest.mark.parametrize(("host", "change"), [(0.0, 0.0), (0.0, 0.1), (0.5, 0.0), (0.5, 0.2), (0.9, 0.0), (0.9, 0.3)])
def test_ten_thousand_gates(host: float, change: float) -> None:
    """Captures that vary as the model says, on hosts whose speed varies by 16 %, with two captures a side.

    Not slower is wrong of a change of twice the limit, and slower of none, in 5 % of cases at most.
    """
    random = np.random.default_rng(1)
    limit = change / 2 or 0.05
    spread = float(np.sqrt(0.01**2 + 0.1**2 * host))
    codes = {0: 0, 3: 0, 4: 0}
    for _ in range(10_000):
        speeds = random.normal(0, 0.16, (2, 2))
        follows = random.uniform(0, host)  # the share of the step that follows the speed of hosts
        times = random.normal(0, spread, (2, 2)) + follows * speeds + np.array([[0.0], [log1p(change)]])
        codes[rule(weigh(times.tolist(), speeds.tolist(), Shares(host, 0.0, 0.0)), limit)] += 1
    wrong = codes[0] if change else codes[3]
    assert wrong / 10_000 <= 0.05
    if not host:  # what the GPU limits is decided
        assert codes[3 if change else 0] / 10_000 >= 0.9


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(("count", "spread"), [(4, 0.3), (8, 0.2), (20, 0.1)])
def test_steps_that_vary_raise_no_alarm(size: int, count: int, spread: float) -> None:
    """A program that its GPU limits, whose steps vary far more than its captures: noise that the model did not make."""
    random = np.random.default_rng(3)
    codes = []
    for _ in range(100):
        sides = []
        for name in "ab":
            steps = [100 * np.exp(random.normal(0, spread, count)) for _ in range(size)]
            sides.append(make_side(name, [make_summary(steps_of("compute_ns", *map(float, each))) for each in steps]))
        codes.append(judge(compare_sides(sides).pairs[0], 0.05).code)
    assert codes.count(3) / len(codes) <= 0.06


def test_quantiles_are_those_of_tables() -> None:
    """Two-sided 10 %, 5 % and 0.1 % of Student's t as printed tables have them."""
    for share, freedom, value in (
        (0.95, 10, 1.812),
        (0.95, 30, 1.697),
        (0.975, 10, 2.228),
        (0.9995, 10, 4.587),
        (0.9995, 20, 3.850),
        (0.99995, 20, 4.838),
    ):
        assert find_quantile(share, freedom) == pytest.approx(value, rel=0.01)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("5", 0.05),
        ("0.05", 0.05),
        ("5%", 0.05),
        (" 7.5 % ", 0.075),
        ("0.5%", 0.005),
        ("0", 0),
        ("1", 0.01),
        ("0.5", None),
        ("x", None),
    ],
)
def test_limits_say_what_they_take(text: str, limit: float | None) -> None:
    assert read_limit(text) == (None if limit is None else pytest.approx(limit))


def steps_of(part: str, *milliseconds: float) -> list[dict[str, int]]:
    return [{part: round(ms * MS) * GPUS} for ms in milliseconds]


def pair(part: str, a: list[float], b: list[float]):  # type: ignore[no-untyped-def]
    sides = [Side(name, make_summary(steps_of(part, *ms))) for name, ms in (("a", a), ("b", b))]
    return compare_sides(sides).pairs[0]


def test_rulings_say_what_would_decide() -> None:
    few = judge(pair("compute_ns", [100, 101, 102], [186, 187, 188]), 0.05)
    assert few == (4, "+85.1% in 3 steps: capture at least 4, or two captures")
    slower = judge(pair("compute_ns", [100, 101] * 4, [120, 121] * 4), 0.05)
    assert slower.code == 3 and slower.text.startswith("slower (+19.9%, ")
    same = judge(pair("compute_ns", [100, 101] * 4, [101, 100] * 4), 0.05)
    assert same.code == 0 and same.text.startswith("not slower (+0.0%, ")
    noise = judge(pair("host_ns", [100, 101] * 4, [107, 108] * 4), 0.05)
    assert noise.code == 4 and noise.text.endswith(
        "captures of such a program vary by 10.1%: compare at least 20 of each"
    )
    wider = judge(pair("host_ns", [100, 101] * 4, [107, 108] * 4), 0.1)
    assert wider.code == 4 and wider.text.endswith(
        "captures of such a program vary by 10.1%: compare at least 6 of each"
    )
    one = [make_side("a", [make_summary(steps_of("compute_ns", 100.0, 101, 99, 100))] * 9)]
    single = compare_sides([*one, Side("b", make_summary(steps_of("compute_ns", 150.0)))])
    assert judge(single.pairs[0], 0.05).text == "+50.0% in 1 step: capture at least 4, or two captures"
    none = compare_sides([Side(name, make_summary([])) for name in "ab"])
    assert [ruling.code for ruling in judge_runs(none, 0.05)] == [4]


def test_captures_that_a_remedy_asks_for_decide() -> None:
    """As many captures as the line asks for find twice the limit in nine of ten cases, by the simulation above."""
    evidence = weigh([[0.0], [0.0]], [[0.0], [0.0]], Shares(0.5, 0.0, 0.0))
    needed = count_captures(evidence, 0.1)
    random = np.random.default_rng(2)
    found = 0
    for _ in range(2000):
        times = random.normal(0, evidence.deviation, (2, needed)) + np.array([[0.0], [log(1.2)]])
        found += rule(weigh(times.tolist(), np.zeros((2, needed)).tolist(), Shares(0.5, 0.0, 0.0)), 0.1) == 3
    assert 0.88 <= found / 2000 <= 0.99


def test_a_slower_host_is_no_slower_program() -> None:
    """Launches that take 1.3 times as long explain a step that takes 1.2 times as long: it is undecided."""
    states = read_captures()
    a = states["turns/host-none-0"][0]
    slow = [replace(call, total_ns=round(call.total_ns * 1.3)) for call in a.calls]
    assert a.efficiency is not None
    steps = [replace(step, length_ns=round(step.length_ns * 1.2)) for step in a.efficiency.steps]
    b = replace(a, calls=slow, efficiency=replace(a.efficiency, steps=steps), facts=None)
    ruling = judge(compare_sides([make_side("a", [a]), make_side("b", [b])]).pairs[0], 0.1)
    assert ruling.code == 4
    assert "launches took 1.3 times as long, so the machine may have been slower" in ruling.text


@pytest.mark.slow
def test_two_real_captures_of_one_program_raise_no_alarm(shared_reports: Path, unpacked: Unpacked) -> None:
    """Two captures whose steps differ by 7 % with p < 0.001, in both orders: never slower, whatever the limit."""
    names = ("w-base", "w-base-again")
    a, b = (nsys2prv_ng.summarize(unpacked(shared_reports / f"whatif/{name}.rank0.sqlite"), jobs=1) for name in names)
    for pair_of_them in ((a, b), (b, a)):
        comparison = nsys2prv_ng.compare(*pair_of_them)
        assert comparison.pairs[0].verdict.p is not None and comparison.pairs[0].verdict.p < 0.001
        assert all(ruling.code != 3 for limit in (0.001, 0.02, 0.05, 0.07, 0.2) for ruling in comparison.judge(limit))
