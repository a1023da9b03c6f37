"""Values of plugins: a capture against plain SQL, and small exports, old and new, for what can be odd."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng.sources.shared.reasons import NO_METRIC, ONLY_JSON, TOO_LARGE
from tests.conftest import NO_REPORTS, REPORTS
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
    assert (told.read, told.dropped) == (3, {NO_METRIC: 2})


# ---- exports that have the values as JSON only -----------------------------------------------------------------------


def test_old_exports_are_exported_again(tmp_path: Path) -> None:
    tables: dict[str, Rows] = {
        "GENERIC_EVENTS": (OLD_EVENTS, [(10 * i, 10 * i, TYPE, '{"load":"1"}') for i in range(3)]),
        "GENERIC_EVENT_TYPES": (OLD_TYPES, [(TYPE, 50, '{"Name":"","Fields":[{"Name":"load"}]}')]),
        "GENERIC_EVENT_SOURCES": (OLD_SOURCES, [(50, '{"Name":"Storage"}')]),
    }
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", NAME)
    told = get_account(summary, NAME)
    assert (told.read, told.written, told.dropped) == (3, 0, {ONLY_JSON: 3})
    assert trace.names["THREAD"] == ["node"]  # which shows the capture


def test_fields_without_a_name_have_that_of_their_description(tmp_path: Path) -> None:
    tables = values((1, 0, 7, None, None, None), (1, 1, 8, None, None, None), (1, 2, 9, None, None, None)) | {
        "GENERIC_EVENT_TYPES": (TYPES, [(TYPE, 50, 1, '{"Fields":[{"Name":"rx"},{"Name":"tx [MB]"}]}')]),
        "GENERIC_EVENT_TYPE_FIELDS": (FIELDS, [(TYPE, i, 99, 8 * i, 8, SIGNED) for i in range(3)]),
    }
    assert shown(tmp_path, tables) == [("plugin", 0, {"Plugin: rx": 7, "Plugin: tx [MB]": 8, "Plugin: field 2": 9})]
