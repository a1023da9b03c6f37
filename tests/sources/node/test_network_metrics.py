"""Metrics of network cards and switches: small exports with the columns of nsys's schema; no capture is here."""

from __future__ import annotations

import random
from pathlib import Path

import pandas as pd
import pytest

from nsys2prv_ng.paraver.families import NODE_METRIC_COUNT, NODE_METRIC_FIRST
from tests.sources.node.node_reports import (
    CARD,
    CONGESTION,
    ENUM,
    LIST,
    METRIC,
    METRIC_OF_PORT,
    NAMES,
    NETWORK_METRICS,
    NICS,
    OTHER_CARD,
    SWITCHES,
    collect_lines,
    make_nic_tables,
    tabulate_events,
)
from tests.sources.small_reports import UTC, export, get_account, translate_reports

SENT, RECEIVED, WAITS = "IB: Bytes sent [bytes/ms]", "IB: Bytes received [bytes/ms]", "IB: Send waits [ticks/ms]"
GUID = -2_261_524_981_146_488_322
NAME = "network_metrics"


def test_a_line_for_each_sample_of_each_card(tmp_path: Path) -> None:
    rows = [
        (100, 200, CARD, LIST, 6, 5),
        (100, 200, CARD, LIST, 7, -1),
        (100, 200, OTHER_CARD, LIST, 6, 9),
        (200, 300, CARD, LIST, 6, 1 << 50),
        (200, 300, CARD, LIST, 99, 2),
    ]
    trace, summary = translate_reports(
        [export(tmp_path / "a.sqlite", [], make_nic_tables(rows))], tmp_path / "x.prv", NAME
    )
    assert summary.start_utc_ns == UTC + 100
    assert collect_lines(trace) == [
        ("NIC mlx5_0", 0, {SENT: 5, RECEIVED: -1}),
        ("NIC 1000000000001", 0, {SENT: 9}),
        ("NIC mlx5_0", 100, {SENT: 1 << 50, "Network metric 7.99": 2}),
    ]
    assert trace.names["TASK"] == ["host"]
    told = get_account(summary, NAME)
    assert (told.read, told.written, told.dropped) == (3, 3, {})
    assert all(
        NODE_METRIC_FIRST <= number < NODE_METRIC_FIRST + NODE_METRIC_COUNT for number in set(trace.events["type"])
    )


def test_what_is_missing(tmp_path: Path) -> None:
    rows = [
        (100, 200, CARD, LIST, 6, 5),
        (100, 200, CARD, LIST, 7, None),
        (None, 200, CARD, LIST, 6, 5),
        (150, None, CARD, LIST, 6, 6),
        (160, 200, None, LIST, 6, 5),
        (170, 200, CARD, None, 6, 5),
        (180, 200, CARD, LIST, None, 5),
        (190, 200, CARD, LIST, 6, "text"),
    ]
    trace, summary = translate_reports(
        [export(tmp_path / "a.sqlite", [], make_nic_tables(rows))], tmp_path / "x.prv", NAME
    )
    assert collect_lines(trace) == [("NIC mlx5_0", 0, {SENT: 5}), ("NIC mlx5_0", 50, {SENT: 6})]
    told = get_account(summary, NAME)
    assert (told.read, told.dropped) == (7, {"no time": 1, "no device": 1, "no value": 3})
    assert summary.reports[0].warnings == ["4 values of network metrics are NULL and dropped"]


def test_an_export_that_describes_nothing(tmp_path: Path) -> None:
    tables = {"NET_NIC_METRIC": (METRIC, [(10, 20, CARD, 0, 1, 4)])}
    trace, _ = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", NAME)
    assert collect_lines(trace) == [("NIC 1000000000000", 0, {"Network metric 0.1": 4})]


def test_names_and_units_of_any_characters(tmp_path: Path) -> None:
    names = [(0, 0, "a\nb", "", " "), (0, 1, "c [x]", "", "µ\tT [²]"), (0, 2, "", "", "B"), (0, 3, None, "", None)]
    tables = make_nic_tables([(10, 20, CARD, 0, i, i + 1) for i in range(4)]) | {
        "TARGET_INFO_NETWORK_METRICS": (NETWORK_METRICS, names),
        "TARGET_INFO_NIC_INFO": (NICS, [(1, "", 3, "LEVEL\n1", 1, 1, 1)]),
    }
    trace, _ = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", NAME)
    assert collect_lines(trace) == [
        ("NIC LEVEL 1", 0, {"a b": 1, "c [x] [µ T [²]]": 2, "Network metric 0.2": 3, "Network metric 0.3": 4})
    ]


def test_ports(tmp_path: Path) -> None:
    """Newer exports tell the port; the first of a card is not told, since most have one."""
    rows = [(10, 20, card, port, LIST, 6, port) for card in (CARD, OTHER_CARD) for port in (1, 2)]
    tables = make_nic_tables(rows, METRIC_OF_PORT) | {
        "NIC_ID_MAP": (("nicId", "globalId"), [(3, CARD), (4, OTHER_CARD)]),
        "TARGET_INFO_NIC_INFO": (NICS, [(1, "", 3, "mlx5_0", 1, 1, 1), (2, "", 4, "mlx5_0", 1, 1, 1)]),
        "NET_IB_SWITCH_METRIC": (METRIC_OF_PORT, [(15, 20, GUID, 1, LIST, 10, 3), (15, 20, GUID, 12, LIST, 10, 4)]),
        "NET_IB_DEVICE_INFO": (SWITCHES, [(1, GUID, "spine", "Quantum", 3)]),
    }
    trace, _ = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", NAME)
    assert sorted(collect_lines(trace)) == [
        ("IB switch spine port 1", 5, {WAITS: 3}),
        ("IB switch spine port 12", 5, {WAITS: 4}),
        ("NIC mlx5_0", 0, {SENT: 1}),
        ("NIC mlx5_0 port 2", 0, {SENT: 2}),
        ("NIC mlx5_0-2", 0, {SENT: 1}),
        ("NIC mlx5_0-2 port 2", 0, {SENT: 2}),
    ]
    # Rows are in the order of the numbers in their names.
    assert trace.names["THREAD"][:2] == ["IB switch spine port 1", "IB switch spine port 12"]


def test_congestion(tmp_path: Path) -> None:
    rows = [
        (10, GUID, 1, 4, 5, 0, 0, 0, 0, 7, 8),
        (20, GUID, 9, None, None, 0, 0, 0, 0, None, None),
        (30, GUID, None, 1, 1, 0, 0, 0, 0, 1, 1),
        (None, GUID, 1, 1, 1, 0, 0, 0, 0, 1, 1),
        (2**63 - 1, GUID, 1, 1, 1, 0, 0, 0, 0, 1, 1),
        (40, None, 1, 1, 1, 0, 0, 0, 0, 1, 1),
        (50, 255, 1, 4, 5, 0, 0, 0, 0, 7, 8),
    ]
    tables = {
        "NET_IB_SWITCH_CONGESTION_EVENT": (CONGESTION, rows),
        "ENUM_NET_IB_CONGESTION_EVENT_TYPE": (ENUM, [(1, "A", "Long queue")]),
        "NET_IB_DEVICE_INFO": (SWITCHES, [(1, GUID, None, "Quantum", 3), (1, None, "x", "y", 3)]),
    }
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", NAME)
    kind, packet = "InfiniBand congestion", "Congested packet "
    source, destination = packet + "source LID", packet + "destination LID"
    said = {source: 4, destination: 5, packet + "ingress port": 7, packet + "egress port": 8}
    assert collect_lines(trace) == [
        ("IB switch Quantum", 0, {kind: "Long queue", **said}),
        ("IB switch Quantum", 10, {kind: "type 9"}),
        ("IB switch Quantum", 20, {kind: "unknown", **dict.fromkeys(said, 1)}),
        ("IB switch ff", 40, {kind: "Long queue", **said}),
    ]
    told = get_account(summary, NAME)
    assert (told.read, told.dropped) == (7, {"no time": 2, "no device": 1})


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_rows(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    rows = [
        (time, time + 10, card, LIST, metric, rng.randrange(-5, 1 << 40))
        for time in range(1000, 1400, 10)
        for card in (CARD, OTHER_CARD)
        for metric in (6, 7, 10)
        if rng.random() < 0.8
    ]
    rng.shuffle(rows)
    report = export(tmp_path / "a.sqlite", [], make_nic_tables(rows))
    trace, summary = translate_reports([report], tmp_path / "x.prv", NAME)
    expected = pd.DataFrame(rows, columns=METRIC)
    expected["row"] = expected["globalId"].map({CARD: "NIC mlx5_0", OTHER_CARD: "NIC 1000000000001"})
    titles = {index: f"{name} [{unit}]" for _, index, name, _, unit in NAMES}
    expected["name"], expected["time"] = expected["metricsIdx"].map(titles), expected["start"] - expected["start"].min()
    order = ["row", "name", "time", "value"]
    pd.testing.assert_frame_equal(
        tabulate_events(trace)[order].sort_values(order, ignore_index=True),
        expected[order].sort_values(order, ignore_index=True),
    )
    assert get_account(summary, NAME).written == expected.groupby(["row", "time"]).ngroups
