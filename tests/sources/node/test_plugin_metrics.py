"""Values of plugins: a capture against plain SQL, and small exports, old and new, for what can be odd."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.report import sqlite_file
from nsys2prv_ng.sources.node import plugin_metrics
from nsys2prv_ng.sources.node.json_numbers import find_numbers, find_values
from nsys2prv_ng.sources.shared.samples import TOO_LARGE
from tests.conftest import NO_REPORTS, REPORTS
from tests.examples import examples
from tests.sources.node.node_reports import (
    DATA,
    EVENTS,
    FIELDS,
    OLD_EVENTS,
    OLD_SOURCES,
    OLD_TYPES,
    SOC_NAMES,
    SOURCES,
    TYPES,
    collect_lines,
    tabulate_events,
)
from tests.sources.small_reports import MAIN, Rows, export, get_account, translate_reports

pytestmark = pytest.mark.slow

NAME = "plugin_metrics"
TYPE = 281_492_156_579_841
STRINGS = ["GenericCounters", "", "rx_bytes", "tx_bytes", "load [%]", "eth0"]
SIGNED, UNSIGNED, FLOAT, DOUBLE = range(4)


def described(*types_of_fields: int, name: int = 1) -> dict[str, Rows]:
    """A type with fields of these types, named by the strings from the third on."""
    return {
        "GENERIC_EVENT_SOURCES": (SOURCES, [(50, 0, 3, 0, None)]),
        "GENERIC_EVENT_TYPES": (TYPES, [(TYPE, 50, name, None)]),
        "GENERIC_EVENT_TYPE_FIELDS": (FIELDS, [(TYPE, i, 2 + i, 8 * i, 8, t) for i, t in enumerate(types_of_fields)]),
        "PROCESSES": (("globalPid", "name"), [(MAIN >> 24 << 24, "/opt/nsys/network_plugin")]),
    }


def values(*rows: Sequence[object], text: str | None = None) -> dict[str, Rows]:
    """Events 1, 2, ... at 10, 20, ..., and rows of their values."""
    events = [(i, 10 * i, 10 * i, TYPE, MAIN, text) for i in sorted({int(row[0]) for row in rows})]  # type: ignore
    return {"GENERIC_EVENTS": (EVENTS, events), "GENERIC_EVENT_DATA": (DATA, rows)}


def shown(folder: Path, tables: dict[str, Rows]) -> list[tuple[str, int, dict[str, int | str]]]:
    trace, _ = translate_reports([export(folder / "a.sqlite", STRINGS, tables)], folder / "x.prv", NAME)
    return collect_lines(trace)


def test_a_capture(tmp_path: Path) -> None:
    report = REPORTS / "gpu" / "autograd-1.sqlite"
    if not report.exists():
        pytest.skip(NO_REPORTS)
    trace, summary = translate_reports([report], tmp_path / "x.prv", NAME)
    with closing(sqlite3.connect(f"{report.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        ((utc,),) = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
        rows = database.execute(
            "SELECT timestamp, intVal, data, fieldIdx"
            " FROM GENERIC_EVENTS JOIN GENERIC_EVENT_DATA USING (genericEventId)"
        ).fetchall()
    # Its names of fields were removed from the export, but for those in its texts, which have no order.
    expected = [(utc + t, name, int(v)) for t, _, text, i in rows if i == 0 for name, v in json.loads(text).items()]
    found = tabulate_events(trace)
    at = found["time"] + summary.start_utc_ns
    told = zip(at, found["name"].str.removeprefix("Plugin: "), found["value"], strict=True)
    assert sorted(told) == sorted(expected) and len(expected) == len(rows) == 144
    assert {value for _, value, _, _ in rows} == {0} == set(found["value"])
    assert set(found["row"]) == {"network_plugin"} and trace.names["TASK"] == ["vm"]
    assert (get_account(summary, NAME).read, get_account(summary, NAME).written) == (72, 72)


def test_integers_real_numbers_and_huge_ones(tmp_path: Path) -> None:
    tables = described(SIGNED, UNSIGNED, DOUBLE) | values(
        (1, 0, -5, None, None, None),
        (1, 1, None, 1 << 62, None, None),
        (1, 2, None, None, None, 0.25),
        (2, 0, 1 << 50, None, None, None),
        (2, 2, None, None, 1.5, None),
        (3, 2, 3, None, None, None),
        (4, 2, None, None, None, 1e15),
        (5, 0, None, None, None, None),
    )
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", STRINGS, tables)], tmp_path / "x.prv", NAME)
    rx, tx, load = "Plugin: rx_bytes", "Plugin: tx_bytes", "Plugin: load [%]"
    assert collect_lines(trace) == [
        ("network_plugin", 0, {rx: -5, tx: 1 << 62, load: 250_000}),
        ("network_plugin", 10, {rx: 1 << 50, load: 1_500_000}),
        ("network_plugin", 20, {load: 3_000_000}),
    ]
    (number,) = (number for number, label in trace.types.items() if label == load)
    assert f"0 {number} {load}\nPRECISION 6\n" in (tmp_path / "x.pcf").read_text()
    told = get_account(summary, NAME)
    assert (told.read, told.dropped) == (5, {"no value": 1, TOO_LARGE: 1})


def test_what_is_not_described(tmp_path: Path) -> None:
    """No type, no field, no process: what is real is told by the values."""
    tables: dict[str, Rows] = {
        "GENERIC_EVENTS": (EVENTS, [(1, 5, None, TYPE, None, None), (2, 7, 8, 3, None, None)]),
        "GENERIC_EVENT_DATA": (
            DATA,
            [(1, 0, 4, None, None, None), (1, 1, None, None, 0.5, None), (2, 0, 1, *[None] * 3)],
        ),
    }
    assert shown(tmp_path, tables) == [
        ("plugin-2", 0, {"Plugin: field 0": 4, "Plugin: field 1": 500_000}),
        ("plugin", 3, {"Plugin: field 0": 1}),
    ]


def test_what_is_missing(tmp_path: Path) -> None:
    events = [
        (1, 10, None, TYPE, MAIN, None),  # has its raw time
        (2, None, None, TYPE, MAIN, None),
        (3, 30, 30, None, MAIN, None),
        (4, 40, 40, TYPE, MAIN, None),  # has no values
        (None, 50, 50, TYPE, MAIN, None),
        (6, 60, 60, TYPE, MAIN, None),
    ]
    data = [(1, 0, 7), (2, 0, 1), (3, 0, 1), (6, None, 1), (6, 0, None), (99, 0, 1), (None, 0, 1)]
    tables = described(SIGNED) | {
        "GENERIC_EVENTS": (EVENTS, events),
        "GENERIC_EVENT_DATA": (DATA, [(*row, None, None, None) for row in data]),
    }
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", STRINGS, tables)], tmp_path / "x.prv", NAME)
    assert collect_lines(trace) == [("network_plugin", 0, {"Plugin: rx_bytes": 7})]
    told = get_account(summary, NAME)
    assert (told.read, told.dropped) == (6, {"no values": 2, "no time": 1, "no device": 1, "no value": 1})


def test_each_process_and_type_is_a_row(tmp_path: Path) -> None:
    other = MAIN + (1 << 24)
    tables = described(SIGNED, name=5) | {
        "GENERIC_EVENTS": (EVENTS, [(i, 5, 5, TYPE, tid, None) for i, tid in enumerate([MAIN, MAIN + 1, other, None])]),
        "GENERIC_EVENT_DATA": (DATA, [(i, 0, i, None, None, None) for i in range(4)]),
        "PROCESSES": (("globalPid", "name"), [(each >> 24 << 24, "plug") for each in (MAIN, other)]),
    }
    assert sorted(shown(tmp_path, tables)) == [
        ("GenericCounters eth0", 0, {"Plugin: rx_bytes": 3}),
        ("plug eth0", 0, {"Plugin: rx_bytes": 1}),
        ("plug eth0-2", 0, {"Plugin: rx_bytes": 2}),
    ]


def test_metrics_of_gpus_and_events_of_tracers_are_not_shown(tmp_path: Path) -> None:
    types = {1: 10, 2: 20, 3: 30, 4: 40, 5: 40, 6: 40}
    tables: dict[str, Rows] = {
        "GENERIC_EVENTS": (EVENTS, [(i, i, i, i, None, None) for i in types]),
        "GENERIC_EVENT_DATA": (DATA, [(i, 0, i, None, None, None) for i in types]),
        "GENERIC_EVENT_TYPES": (TYPES, [(i, source, None, None) for i, source in types.items()]),
        "GENERIC_EVENT_SOURCES": (
            SOURCES,
            [
                (10, None, 0, 0, '{"Name":"GpuMetrics"}'),
                (20, None, 0, 1, None),
                (30, None, 0, None, '{"SourceGroup":"ETW"}'),
                (40, None, 0, 0, '{"Name":"Good"}'),
            ],
        ),
        "TARGET_INFO_GPU_METRICS": (SOC_NAMES, [(4, 40, "", 0, "SMs Active")]),
        "TARGET_INFO_SOC_METRICS": (SOC_NAMES, [(5, 40, "", 0, "DLA Active")]),
    }
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", NAME)
    assert collect_lines(trace) == [("Good", 0, {"Plugin: field 0": 6})]
    told = get_account(summary, NAME)
    assert (told.read, told.dropped) == (3, {plugin_metrics.NO_METRIC: 2})


# ---- values in texts -------------------------------------------------------------------------------------------------


def old(texts: Sequence[object], fields: Sequence[str] | None = None) -> dict[str, Rows]:
    """An export that has its events as texts only."""
    said = {"Name": "", "Fields": [{"Name": name} for name in fields]} if fields is not None else {"Name": ""}
    return {
        "GENERIC_EVENTS": (OLD_EVENTS, [(10 * i, 10 * i, TYPE, text) for i, text in enumerate(texts)]),
        "GENERIC_EVENT_TYPES": (OLD_TYPES, [(TYPE, 50, json.dumps(said))]),
        "GENERIC_EVENT_SOURCES": (OLD_SOURCES, [(50, '{"Name":"Storage"}')]),
    }


def test_texts(tmp_path: Path) -> None:
    texts = [
        '{"a\\/b":"12","load [%]":"1.5"}\n',
        '{ "load [%]" : -2e-3 , "a\\/b" : 18446744073709551615 }',
        '{"a/b":"-9223372036854775808"}',
        '{"a/b":"99999999999999999999999"}',
        "no JSON",
        None,
        '{"a/b":"x","load [%]":null}',
    ]
    trace, summary = translate_reports(
        [export(tmp_path / "a.sqlite", [], old(texts, ["a/b", "load [%]"]))], tmp_path / "x.prv", NAME
    )
    assert collect_lines(trace) == [
        ("Storage", 0, {"Plugin: a/b": 12, "Plugin: load [%]": 1_500_000}),
        ("Storage", 10, {"Plugin: a/b": -1, "Plugin: load [%]": -2000}),
    ]
    # What stands for NULL is no value either.
    assert get_account(summary, NAME).dropped == {"no value": 5}


def test_texts_with_what_only_starts_like_a_number(tmp_path: Path) -> None:
    texts = ['{"v":"10.0.0.1"}', '{"v":"0x12"}', '{"v":"2024-01-02"}', '{"v":"12 MB"}', '{"o":{"v":7},"v":8}']
    trace, summary = translate_reports(
        [export(tmp_path / "a.sqlite", [], old([*texts, '{"caf\\u00e9":5}'], ["v", "café"]))], tmp_path / "x.prv", NAME
    )
    assert collect_lines(trace) == [("Storage", 0, {"Plugin: v": 8}), ("Storage", 10, {"Plugin: café": 5})]
    assert get_account(summary, NAME).dropped == {"no value": 4}


def test_texts_with_real_numbers_out_of_range(tmp_path: Path) -> None:
    assert shown(tmp_path, old(['{"v":1e999}', '{"v":-1e-999}', '{"v":0.5}'], ["v"])) == [
        ("Storage", 0, {"Plugin: v": 0}),
        ("Storage", 10, {"Plugin: v": 500_000}),
    ]


def test_texts_of_a_type_without_fields(tmp_path: Path) -> None:
    texts = [None, '{"x":"1","y":"2"}', '{"y":"4","z":"3"}']
    assert shown(tmp_path, old(texts)) == [
        ("Storage", 0, {"Plugin: x": 1, "Plugin: y": 2}),
        ("Storage", 10, {"Plugin: y": 4}),
    ]


def test_no_texts_at_all(tmp_path: Path) -> None:
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", [], old([None, ""]))], tmp_path / "x.prv", NAME)
    assert get_account(summary, NAME).dropped == {"no value": 2}
    assert trace.names["THREAD"] == ["node"]  # which shows the capture


def test_texts_of_others_are_not_those_of_plugins(tmp_path: Path) -> None:
    """Which have their values in the table here, though the export has names of fields no more."""
    tables = values((1, 0, 7, None, None, None)) | {"TARGET_INFO_GPU_METRICS": (SOC_NAMES, [(4, 40, "", 0, "SMs")])}
    columns, rows = tables["GENERIC_EVENTS"]
    tables["GENERIC_EVENTS"] = (columns, [*rows, (2, 5, 5, 4, MAIN, '{"a":"1"}')])
    assert shown(tmp_path, tables) == [("plugin", 0, {"Plugin: field 0": 7})]


OF_TYPE = {TYPE: ["v0", "w0"], TYPE + 1: ["v1"], TYPE + 2: []}
VALUE = (
    st.integers(-9, 9) | st.floats(-9, 9) | st.sampled_from([(1 << 64) - 1, (1 << 63) + 1, -(1 << 63) + 1, "x", None])
)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(list(OF_TYPE)), st.dictionaries(st.sampled_from("vw"), VALUE)), max_size=12),
    st.integers(1, 5),
)
def test_values_are_the_same_however_many_texts_are_read_at_once(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[int, dict]], rows: int
) -> None:
    """All that Python's json finds: a field's are real if one of them is, wherever that is."""
    events = [(each, {f"{name}{each - TYPE}": value for name, value in of.items()}) for each, of in events]
    names = OF_TYPE | {TYPE + 2: next((list(of) for each, of in events if each == TYPE + 2 and of), [])}
    reals = {(each, name) for each, of in events for name, value in of.items() if isinstance(value, float)}
    expected = []
    for i, (each, of) in enumerate(events):
        for name in names[each]:
            value = of.get(name)
            if not isinstance(value, int | float):
                continue
            if (each, name) in reals and abs(value) < 1e12:
                expected.append((i, f"S {each}", f"Plugin: {name}", round(value * 1_000_000)))
            elif (each, name) not in reals:
                expected.append((i, f"S {each}", f"Plugin: {name}", value - (1 << 64) if value >= 1 << 63 else value))
    said = {each: {"Name": str(each), "Fields": [{"Name": name} for name in of]} for each, of in OF_TYPE.items()}
    tables: dict[str, Rows] = {
        "GENERIC_EVENTS": (OLD_EVENTS, [(i, i, each, json.dumps(of)) for i, (each, of) in enumerate(events)]),
        "GENERIC_EVENT_TYPES": (OLD_TYPES, [(each, 50, json.dumps(text)) for each, text in said.items()]),
        "GENERIC_EVENT_SOURCES": (OLD_SOURCES, [(50, '{"Name":"S"}')]),
        "OSRT_API": (("start", "end", "eventClass", "globalTid", "nameId"), [(0, 20_000_000, 27, MAIN, 0)]),
    }
    folder = tmp_path_factory.mktemp("texts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_file, "TEXT_BLOCK_ROWS", rows)
        trace, summary = translate_reports(
            [export(folder / "a.sqlite", ["f"], tables)], folder / "x.prv", f"os_runtime,{NAME}"
        )
    shown = [
        (t, row, label, v)
        for row, t, of in collect_lines(trace)
        for label, v in of.items()
        if label.startswith("Plugin")
    ]
    assert sorted(shown) == sorted(expected)
    assert get_account(summary, NAME).read == len(events) if events else True


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.dictionaries(TEXT, st.lists(st.integers(-(1 << 62), 1 << 62), min_size=4, max_size=4), min_size=1, max_size=4)
)
def test_any_name_and_integer(fields: dict[str, list[int]]) -> None:
    """The values that are cut from texts are those that were put into them."""
    for quoted in (False, True):
        texts = [json.dumps({k: str(v[i]) if quoted else v[i] for k, v in fields.items()}) for i in range(4)]
        for name, expected in fields.items():
            (each,) = find_numbers(pa.array(texts), np.arange(4), [name])
            found = find_values(each, False)
            assert (found.value.tolist(), found.is_real) == (expected, False)


def test_both_paths_agree(tmp_path: Path) -> None:
    rows = [{"rx_bytes": i * i, "tx_bytes": -i} for i in range(50)]
    numbers = described(SIGNED, SIGNED) | values(
        *((i, f, value, None, None, None) for i, row in enumerate(rows) for f, value in enumerate(row.values()))
    )
    texts = old([json.dumps(row) for row in rows], ["tx_bytes", "rx_bytes"])
    frames = []
    for name, tables in (("numbers", numbers), ("texts", texts)):
        trace, _ = translate_reports(
            [export(tmp_path / f"{name}.sqlite", STRINGS, tables)], tmp_path / f"{name}.prv", NAME
        )
        frame = tabulate_events(trace).drop(columns="row").sort_values(["time", "name"], ignore_index=True)
        frames.append(frame.assign(number=frame["name"].map({v: k for k, v in trace.types.items()})))
    pd.testing.assert_frame_equal(*frames)
    assert len(frames[0]) == 100
