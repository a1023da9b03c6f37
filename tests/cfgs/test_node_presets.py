"""Presets of what no sample has: network cards, the network plugin, messages of nsys. Tested on small exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cfgs.recorded import show
from tests.sources.node.node_reports import CARD, DATA, DIAGNOSTICS, EVENTS, FIELDS, METRIC, NETWORK_METRICS, TYPES
from tests.sources.small_reports import MAIN, Rows, export, translate_reports
from tests.trace_reader import Trace

pytestmark = pytest.mark.slow  # translates whole jobs

CALL = ("start", "end", "globalTid", "nameId")
GB = 1_000_000  # bytes per ms


def make_node_trace(folder: Path) -> Trace:
    """Translate a report of a call, two cards, a plugin and two messages.

    The call lasts from 0 to 100. The InfiniBand card has samples at 0, 20, 40, the Ethernet card at 10, 50.
    """
    names = [
        (0, 0, "IB: Bytes sent"),
        (0, 1, "IB: Bytes received"),
        (0, 2, "Eth: Bytes sent"),
        (0, 3, "IB: Send waits"),
    ]
    nics = [
        *((t, t + 20, CARD, 0, 0, value * GB) for t, value in ((0, 3), (20, 0), (40, 5))),
        *((t, t + 20, CARD, 0, 3, 999) for t in (0, 20, 40)),
        *((t, t + 40, CARD + 1, 0, 2, value * GB) for t, value in ((10, 1), (50, 2))),
    ]
    tables: dict[str, Rows] = {
        "CUPTI_ACTIVITY_KIND_RUNTIME": (CALL, [(0, 100, MAIN, 0)]),
        "NET_NIC_METRIC": (METRIC, nics),
        "TARGET_INFO_NETWORK_METRICS": (NETWORK_METRICS, [(*name, "", "bytes/ms") for name in names]),
        "GENERIC_EVENT_TYPES": (TYPES, [(1, 50, None, None)]),
        "GENERIC_EVENT_TYPE_FIELDS": (FIELDS, [(1, 0, 1, 0, 8, 0), (1, 1, 2, 8, 8, 0)]),
        "GENERIC_EVENTS": (EVENTS, [(i, t, t, 1, None, None) for i, t in enumerate((30, 60, 80))]),
        "GENERIC_EVENT_DATA": (DATA, [(i, f, 10 * i + f, None, None, None) for i in range(3) for f in range(2)]),
        "DIAGNOSTIC_EVENT": (DIAGNOSTICS, [(t, 1, 1, s, "x", None) for t, s in ((25, 3), (75, 2))]),
    }
    sources = "cuda_api,network_metrics,plugin_metrics,diagnostics"
    report = export(folder / "a.sqlite", ["cudaFree", "rx_bytes", "tx_bytes"], tables)
    trace, _ = translate_reports([report], folder / "x.prv", sources)
    assert trace.names["TASK"][1] == "host"
    return trace


@pytest.mark.parametrize(
    ("preset", "window", "expected"),
    [
        # The last sample of a row has no end and is not shown.
        ("hwcounters/network_cards", "Network sent [GB/s]", [(0, 10, 3), (10, 20, 4), (20, 40, 1), (40, 50, 1)]),
        ("hwcounters/network_cards", "Network received [GB/s]", []),
        ("hwcounters/network_plugin", "Bytes received, by sample", [(60, 80, 10)]),
        ("hwcounters/network_plugin", "Bytes sent, by sample", [(30, 60, 1), (60, 80, 11)]),
    ],
)
def test_bytes_that_a_node_sent_and_received(
    preset: str, window: str, expected: list[tuple[int, int, int]], tmp_path: Path
) -> None:
    windows = show(preset, make_node_trace(tmp_path)).windows
    (bursts,) = (shown.bursts for shown in windows if shown.name == window)
    shown = bursts[(bursts["value"] != 0)]
    assert set(shown["object"]) <= {1}
    assert list(shown[["begin", "end", "value"]].itertuples(index=False, name=None)) == expected


def test_each_message_of_nsys_lasts_until_the_next(tmp_path: Path) -> None:
    trace = make_node_trace(tmp_path)
    (window,) = show("basics/diagnostics", trace).windows
    shown = window.bursts[window.bursts["value"] != 0]
    assert {trace.names["THREAD"][row] for row in shown["object"]} == {"node"}
    assert [
        (b, e, trace.values[66900000][v]) for b, e, v in shown[["begin", "end", "value"]].itertuples(index=False)
    ] == [(25, 75, "error: x"), (75, 100, "warning: x")]
