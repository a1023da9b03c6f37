"""Counters of CPUs: small exports with the columns of nsys's schema; no capture is here."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.families import (
    CPU_COUNTER_FIRST,
    FAMILIES,
    NODE_METRIC_COUNT,
    NODE_METRIC_FIRST,
    make_node_metric,
)
from nsys2prv_ng.sources.shared.reasons import REPETITION, TOO_LARGE
from tests.sources.node.node_reports import (
    COMPONENTS,
    PERF_METRIC,
    PERF_NAMES,
    PERF_RAW,
    PMU,
    PMU_NAMES,
    PMU_VALUES,
    SOC,
    SOC_NAMES,
    collect_lines,
)
from tests.sources.small_reports import Rows, export, get_account, translate_reports

NAME = "cpu_counters"


@pytest.mark.parametrize("what", ["CPU", "SOC_OR_CPU"])
def test_raw_counters_and_metrics(what: str, tmp_path: Path) -> None:
    """Rows are (start, end, virtual machine, component, id, value); tables were renamed between versions."""
    raw = [(10, 20, 1, 3, 5, 700), (10, 20, 1, 3, 6, 0), (10, 20, 1, 11, 5, 9), (20, 30, 1, 3, 5, None)]
    metric = [
        (10, 20, 1, 3, 12, 1.25),
        (20, 30, 1, 3, 12, -0.0000005),
        (30, 40, 1, 3, 12, 1e300),
        (40, 50, 1, 3, 77, 2),
    ]
    tables: dict[str, Rows] = {
        f"PERF_EVENT_{what}_RAW_EVENT": (PERF_RAW, raw),
        f"PERF_EVENT_{what}_METRIC_EVENT": (PERF_METRIC, metric),
        "TARGET_INFO_PERF_METRIC": (
            PERF_NAMES,
            [(5, "CPU Cycles", "", "cycles"), (6, "Instructions Retired", "", ""), (12, "IPC", "", "")],
        ),
    }
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", NAME)
    cycles = "CPU Cycles [cycles]"
    assert sorted(collect_lines(trace), key=lambda line: (line[1], line[0], len(line[2]))) == [
        ("CPU 11", 0, {cycles: 9}),
        ("CPU 3", 0, {"IPC": 1_250_000}),
        ("CPU 3", 0, {cycles: 700, "Instructions Retired": 0}),
        ("CPU 3", 10, {"IPC": 0}),
        ("CPU 3", 30, {"CPU metric 77": 2_000_000}),
    ]
    assert trace.names["THREAD"] == ["CPU 3", "CPU 11"]
    numbers = {label: number for number, label in trace.types.items()}
    assert (numbers[cycles], numbers["Instructions Retired"]) == (66600005, 66600006)
    assert NODE_METRIC_FIRST <= numbers["IPC"] < NODE_METRIC_FIRST + NODE_METRIC_COUNT
    pcf = (tmp_path / "x.pcf").read_text()
    assert f"0 {numbers['IPC']} IPC\nPRECISION 6\n" in pcf and f"0 {numbers[cycles]} {cycles}\nPRECISION" not in pcf
    told = get_account(summary, NAME)
    assert (told.read, told.dropped) == (7, {"no value": 1, TOO_LARGE: 1})


def test_components_have_names(tmp_path: Path) -> None:
    tables: dict[str, Rows] = {
        "PERF_EVENT_SOC_OR_CPU_RAW_EVENT": (
            PERF_RAW,
            [(10, 20, 1, component, 5, component) for component in (1, 2, 3, None)],
        ),
        "TARGET_INFO_COMPONENT": (COMPONENTS, [(1, "Socket", 0, None), (2, "CMN", None, 1), (4, None, 1, 1)]),
    }
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", NAME)
    assert collect_lines(trace) == [
        ("Socket 0", 0, {"CPU counter 5": 1}),
        ("CMN", 0, {"CPU counter 5": 2}),
        ("CPU 3", 0, {"CPU counter 5": 3}),
    ]
    assert get_account(summary, NAME).dropped == {"no device": 1}


def test_counters_of_the_pmu(tmp_path: Path) -> None:
    """An event of a core has several values, found by an id."""
    tables: dict[str, Rows] = {
        "PMU_EVENTS": (
            PMU,
            [
                (10, 20, 1, 0, 100),
                (10, 20, 1, 1, 101),
                (20, 30, 1, 0, 102),
                (30, 40, 1, 0, None),
                (2**63 - 1, 0, 1, 0, 103),
            ],
        ),
        "PMU_EVENT_COUNTERS": (
            PMU_VALUES,
            [(100, 0, 5), (100, 1, 6), (101, 1, 7), (103, 0, 1), (999, 0, 1), (None, 0, 1)],
        ),
        "PMU_EVENT_REQUESTS": (PMU_NAMES, [(0, 17, 1, 1, "cpu-cycles"), (1, 18, 1, 1, None)]),
    }
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", NAME)
    assert collect_lines(trace) == [
        ("CPU 0", 0, {"cpu-cycles": 5, "PMU counter 1": 6}),
        ("CPU 1", 0, {"PMU counter 1": 7}),
    ]
    told = get_account(summary, NAME)
    # The values of no event have neither time nor core: they are one sample.
    assert (told.read, told.dropped) == (6, {"no values": 2, "no time": 2})


def test_metrics_of_the_system_on_chip(tmp_path: Path) -> None:
    tables: dict[str, Rows] = {
        "SOC_METRICS": (SOC, [(9, 10, 5, 0, 3), (9, 10, 5, 1, 4), (20, None, 5, 7, 1), (30, 30, None, 0, 1)]),
        "TARGET_INFO_SOC_METRICS": (SOC_NAMES, [(5, 5, "", 0, "EMC Clock [MHz]"), (5, 5, "", 1, "DLA Active")]),
    }
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", NAME)
    assert collect_lines(trace) == [
        ("SoC", 0, {"EMC Clock [MHz]": 3, "DLA Active": 4}),
        ("SoC", 10, {"SoC metric 7": 1}),
    ]
    assert get_account(summary, NAME).dropped == {"no device": 1}


def test_real_values_that_do_not_fit(tmp_path: Path) -> None:
    """Held times 10^6, as Paraver shows them; what is then beyond 62 bits is told to be too large, and nothing else."""
    values = [4.6e12, -4.6e12, 4.7e12, -4.7e12, 1e300, -1e308, float("inf"), None, float("nan"), "text", 0.0]
    rows = [(i * 10, i * 10 + 9, 1, 0, 50, value) for i, value in enumerate(values)]
    rows += [(105, 109, 1, 0, 50, 1e13), (105, 109, 1, 0, 51, 2.5)]  # one of two values of a sample
    tables = {"PERF_EVENT_CPU_METRIC_EVENT": (PERF_METRIC, rows)}
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", NAME)
    numbers = [(i * 10, value) for i, value in enumerate(values) if isinstance(value, float) and value == value]
    fitting = [(time, round(value * 10**6)) for time, value in numbers if abs(value) * 10**6 < 1 << 62]
    assert collect_lines(trace) == [
        *(("CPU 0", time, {"CPU metric 50": value}) for time, value in fitting),
        ("CPU 0", 105, {"CPU metric 51": 2_500_000}),
    ]
    told = get_account(summary, NAME)
    too_large = len(numbers) - len(fitting)
    assert (told.read, told.dropped) == (12, {TOO_LARGE: too_large, "no value": len(values) - len(numbers)})
    assert summary.reports[0].warnings == [
        "3 values of CPU counters are NULL and dropped",
        f"{too_large + 1} values of CPU counters are too large for the trace and dropped",
    ]


def test_integers_like_the_mark_of_large_numbers(tmp_path: Path) -> None:
    rows = [(10, 19, 1, 0, 5, 1 - (1 << 63)), (20, 29, 1, 0, 5, (1 << 63) - 1)]
    report = export(tmp_path / "a.sqlite", [], {"PERF_EVENT_CPU_RAW_EVENT": (PERF_RAW, rows)})
    trace, _ = translate_reports([report], tmp_path / "x.prv", NAME)
    assert trace.events["value"].tolist() == [value for *_, value in rows]


@pytest.mark.parametrize("seed", range(4))
def test_the_last_of_several_values_of_one_time(seed: int, tmp_path: Path) -> None:
    """Brute force over rows of which many agree in core, time and counter; two counters share a name."""
    rng = random.Random(seed)
    rows = [(rng.randrange(5), 9, 1, rng.randrange(2), rng.randrange(3, 7), i) for i in range(rng.choice([5, 40, 200]))]
    names = {3: "A", 4: "B", 5: "B", 6: "C"}
    tables: dict[str, Rows] = {
        "PERF_EVENT_CPU_RAW_EVENT": (PERF_RAW, rows),
        "TARGET_INFO_PERF_METRIC": (PERF_NAMES, [(i, name, "", "") for i, name in names.items()]),
    }
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", NAME)
    last = {(f"CPU {core}", start, names[counter]): value for start, _, _, core, counter, value in rows}
    first = min(start for start, *_ in rows)
    found = [
        (row, time + first, name, value) for row, time, said in collect_lines(trace) for name, value in said.items()
    ]
    assert sorted(found) == sorted((*key, value) for key, value in last.items())
    assert len(trace.events) == len(last)  # no type twice in a line
    told = get_account(summary, NAME)
    samples = len({(start, core) for start, _, _, core, *_ in rows})
    repetitions = len(rows) - len(last)
    assert (told.read, told.written) == (samples + repetitions, samples)
    assert told.dropped == ({REPETITION: repetitions} if repetitions else {})


# ---- numbers ---------------------------------------------------------------------------------------------------------


def _numbers(metrics: Sequence[tuple[str, int]], known: Mapping[str, int] | None = None) -> dict[str, int]:
    types: list[EventType] = [make_node_metric(NAME, name, counter_id=i) for name, i in metrics]
    return {event_type.label: number for event_type, number in FAMILIES["node_metrics"](types, known or {}).items()}


def test_numbers() -> None:
    assert _numbers([("A", 0), ("B", 99_999)]) == {"A": CPU_COUNTER_FIRST, "B": CPU_COUNTER_FIRST + 99_999}
    both = _numbers([("A", 5), ("B", 5), ("C", -1), ("D", 100_000)])  # as where nodes disagree
    assert all(NODE_METRIC_FIRST <= number < NODE_METRIC_FIRST + NODE_METRIC_COUNT for number in both.values())
    assert both["A"] == _numbers([("A", -1)])["A"]
    # Numbers of another trace are kept, and nothing else gets them.
    assert _numbers([("A", 0), ("B", 1)], {"A": 66600001}) == {"A": 66600001, "B": _numbers([("B", -1)])["B"]}
    assert 66500017 < CPU_COUNTER_FIRST < CPU_COUNTER_FIRST + 99_999 < 66700000


def test_integers_and_real_numbers_of_one_name_are_two_types() -> None:
    both = [make_node_metric("plugin_metrics", "x", real=real) for real in (False, True)]
    for known in ({}, {"x": NODE_METRIC_FIRST}):
        assert len(set(FAMILIES["node_metrics"](both, known).values())) == 2


@pytest.mark.parametrize("of_first", [(0,), (1,), (0, 1), (2,), (1, 2)])
@pytest.mark.parametrize("of_second", [(0, 1), (0, 1, 2), (2,)])
def test_metrics_of_one_title_do_not_swap_numbers(of_first: tuple[int, ...], of_second: tuple[int, ...]) -> None:
    """Of a raw counter, a real metric and an integer one: each has, whatever the other trace had, what it has alone."""
    three = (
        make_node_metric(NAME, "IPC", counter_id=3),
        make_node_metric(NAME, "IPC", real=True),
        make_node_metric("other", "IPC"),
    )
    numbers_of = FAMILIES["node_metrics"]
    alone = {each: numbers_of([each], {})[each] for each in three}
    assert alone[three[0]] == CPU_COUNTER_FIRST + 3 and len(set(alone.values())) == 3
    first = numbers_of([three[i] for i in of_first], {})
    for number in first.values():  # a .pcf tells one of each title
        second = [three[i] for i in of_second]
        assert numbers_of(second, {"IPC": number}) == {each: alone[each] for each in second}


def test_a_number_that_another_metric_moved_is_kept() -> None:
    """One of two whose names ask for the same number has it, and the other the next: alone, it keeps that."""
    place: dict[int, EventType] = {}
    for i in range(10_000):
        metric = make_node_metric(NAME, f"m{i}")
        (number,) = FAMILIES["node_metrics"]([metric], {}).values()
        if number in place:
            break
        place[number] = metric
    both = FAMILIES["node_metrics"]([metric, place[number]], {})
    assert sorted(both.values()) == [number, number + 1]
    known = {each.title: of_both for each, of_both in both.items()}
    for each, of_both in both.items():
        assert FAMILIES["node_metrics"]([each], known) == {each: of_both}


@pytest.mark.slow
def test_many_metrics_have_numbers_at_once_until_there_are_no_more() -> None:
    types = [make_node_metric(NAME, f"m{i}") for i in range(30_000)]
    begin = time.process_time()
    numbers = FAMILIES["node_metrics"](types, {})
    assert time.process_time() - begin < 5  # it took minutes when each name looked at all others
    assert len(set(numbers.values())) == len(types)
    hundred = range(NODE_METRIC_FIRST, NODE_METRIC_FIRST + 100)
    assign = partial(FAMILIES["node_metrics"], by_name=hundred)
    few = assign(types[:100], {})
    assert set(few.values()) == set(hundred)
    with pytest.raises(TranslationError, match="more than 100 metrics"):
        assign(types[:101], {})


def test_numbers_are_not_those_that_paraver_knows() -> None:
    """Of these its workspaces tell which programming model a trace is of."""
    known = [63000000, 63000001, 63100000, 50000001, 60000018, 9200001, 69000000, 42000050, 94000001, 30000000]
    for number in known:
        assert not NODE_METRIC_FIRST <= number < NODE_METRIC_FIRST + NODE_METRIC_COUNT
    assert NODE_METRIC_FIRST + NODE_METRIC_COUNT <= 42_000_000


@given(st.lists(st.tuples(st.sampled_from("ABCDEFGH"), st.integers(-1, 3)), min_size=1), st.randoms())
def test_numbers_are_distinct_and_do_not_depend_on_order(metrics: list[tuple[str, int]], shuffle: object) -> None:
    numbers = _numbers(metrics)
    assert len(set(numbers.values())) == len({name for name, _ in metrics})
    shuffled = list(metrics)
    shuffle.shuffle(shuffled)  # type: ignore[attr-defined]
    assert _numbers(shuffled) == numbers
