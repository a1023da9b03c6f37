"""Reports with metrics of a node, in tables with the columns that nsys gives them; and readers of their traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tests.sources.small_reports import MAIN, UTC, Rows, export
from tests.trace_reader import Trace

METRIC = ("start", "end", "globalId", "metricsListId", "metricsIdx", "value")
METRIC_OF_PORT = ("start", "end", "globalId", "portId", "metricsListId", "metricsIdx", "value")
NETWORK_METRICS = ("metricsListId", "metricsIdx", "name", "description", "unit")
NICS = ("GUID", "stateName", "nicId", "name", "deviceId", "vendorId", "linkLayer")
SWITCHES = ("networkId", "guid", "name", "des", "lid")
CONGESTION = (
    *("start", "globalId", "congestionType", "packetSLID", "packetDLID", "packetSL", "packetOpCode", "packetSourceQP"),
    *("packetDestinationQP", "switchIngressPort", "switchEgressPort"),
)
ENUM = ("id", "name", "label")
PERF_RAW = ("start", "end", "vmId", "componentId", "eventId", "count")
PERF_METRIC = ("start", "end", "vmId", "componentId", "metricId", "value")
PERF_NAMES = ("id", "name", "description", "unit")
COMPONENTS = ("componentId", "name", "instance", "parentId")
PMU = ("start", "end", "globalVm", "cpu", "counter_id")
PMU_VALUES = ("id", "idx", "value")
PMU_NAMES = ("id", "eventid", "source", "unit_type", "event_name")
SOC = ("rawTimestamp", "timestamp", "typeId", "metricId", "value")
SOC_NAMES = ("typeId", "sourceId", "typeName", "metricId", "metricName")
EVENTS = ("genericEventId", "rawTimestamp", "timestamp", "typeId", "globalTid", "data")
OLD_EVENTS = ("rawTimestamp", "timestamp", "typeId", "data")
DATA = ("genericEventId", "fieldIdx", "intVal", "uintVal", "floatVal", "doubleVal")
FIELDS = ("typeId", "fieldIdx", "fieldNameId", "offset", "size", "type")
TYPES = ("typeId", "sourceId", "nameId", "data")
SOURCES = ("sourceId", "nameId", "timeSourceId", "sourceGroupId", "data")
OLD_TYPES = ("typeId", "sourceId", "data")
OLD_SOURCES = ("sourceId", "data")
DIAGNOSTICS = ("timestamp", "timestampType", "source", "severity", "text", "globalPid")

LIST = 7
NAMES = [
    (LIST, 6, "IB: Bytes sent", "Amount of InfiniBand bytes sent through the NIC port", "bytes/ms"),
    (LIST, 7, "IB: Bytes received", "", "bytes/ms"),
    (LIST, 10, "IB: Send waits", "", "ticks/ms"),
]
CARD = 281_474_976_710_656
OTHER_CARD = CARD + 1


def make_nic_tables(rows: Sequence[Sequence[object]], columns: Sequence[str] = METRIC) -> dict[str, Rows]:
    """Return tables of metrics of two cards; only the first has a name."""
    return {
        "NET_NIC_METRIC": (columns, rows),
        "TARGET_INFO_NETWORK_METRICS": (NETWORK_METRICS, NAMES),
        "NIC_ID_MAP": (("nicId", "globalId"), [(3, CARD)]),
        "TARGET_INFO_NIC_INFO": (NICS, [(-5, "Local (CLI)", 3, "mlx5_0", 4129, 5555, 2)]),
    }


def collect_lines(trace: Trace) -> list[tuple[str, int, dict[str, int | str]]]:
    """Return row, time and values of each line of events, in order.

    Values are by the label of their type; a value with a label is the label.
    """
    lines = []
    for _, line in trace.events.groupby("line"):
        row, time = trace.names["THREAD"][line["row"].iloc[0]], int(line["time"].iloc[0])
        values = {}
        for number, value in zip(line["type"].tolist(), line["value"].tolist(), strict=True):
            values[trace.types[number]] = trace.values.get(number, {}).get(value, value)
        lines.append((row, time, values))
    return lines


def tabulate_events(trace: Trace) -> pd.DataFrame:
    """Return row, label of the type, time and value of each event."""
    events = trace.events
    return pd.DataFrame(
        {
            "row": [trace.names["THREAD"][row] for row in events["row"]],
            "name": [trace.types[number] for number in events["type"]],
            "time": events["time"],
            "value": events["value"],
        }
    )


def write_node_reports(folder: Path) -> list[Path]:
    """Write three reports of one node with all of these tables, two with plugins' values as numbers, one as texts."""
    call = ("start", "end", "globalTid", "nameId")
    reports = []
    for i in range(3):
        times = range(1000 + 5000 * i, 20_000 + 5000 * i, 500)
        cards = [
            (t, t + 500, card, port, LIST, m, t * m)
            for t in times
            for card in (CARD, 9)
            for port in (1, 2)
            for m in (6, 7)
        ]
        tables: dict[str, Rows] = {
            **make_nic_tables(cards, METRIC_OF_PORT),
            "CUPTI_ACTIVITY_KIND_RUNTIME": (call, [(t, t + 100, MAIN, 0) for t in times]),
            "NET_IB_SWITCH_METRIC": (METRIC, [(t, t + 500, 77, LIST, 10, t) for t in times]),
            "NET_IB_DEVICE_INFO": (SWITCHES, [(1, 77, "spine", "Quantum", 3)]),
            "NET_IB_SWITCH_CONGESTION_EVENT": (CONGESTION, [(t, 77, 1, 2, 3, 4, 5, 6, 7, 8, 9) for t in times]),
            "ENUM_NET_IB_CONGESTION_EVENT_TYPE": (ENUM, [(1, "A", "Long queue")]),
            "PERF_EVENT_CPU_RAW_EVENT": (PERF_RAW, [(t, t + 1, 1, c, 5, t) for t in times for c in range(3)]),
            "PERF_EVENT_SOC_OR_CPU_METRIC_EVENT": (PERF_METRIC, [(t, t + 1, 1, 2, 6, t / 3) for t in times]),
            "TARGET_INFO_PERF_METRIC": (PERF_NAMES, [(5, "Cycles", "", "cycles"), (6, "IPC", "", "")]),
            "TARGET_INFO_COMPONENT": (COMPONENTS, [(1, "Core", 1, 0)]),
            "PMU_EVENTS": (PMU, [(t, t + 1, 1, 0, t) for t in times]),
            "PMU_EVENT_COUNTERS": (PMU_VALUES, [(t, k, t + k) for t in times for k in range(2)]),
            "PMU_EVENT_REQUESTS": (PMU_NAMES, [(k, k, 1, 1, f"event {k}") for k in range(2)]),
            "SOC_METRICS": (SOC, [(t, t, 4, 1, t) for t in times]),
            "TARGET_INFO_SOC_METRICS": (SOC_NAMES, [(4, 3, "", 1, "DLA Active [%]")]),
            "DIAGNOSTIC_EVENT": (DIAGNOSTICS, [(t, t % 3, 1, t % 5, f"lost {t}", MAIN) for t in range(0, 9000, 777)]),
        }
        if i < 2:
            tables |= {
                "GENERIC_EVENTS": (EVENTS, [(t, t, t, 8, MAIN, None) for t in times]),
                "GENERIC_EVENT_DATA": (DATA, [(t, k, *_make_value(k, t)) for t in times for k in range(2 + i)]),
                "GENERIC_EVENT_TYPE_FIELDS": (FIELDS, [(8, k, 1 + k, 8 * k, 8, (0, 1, 3)[k]) for k in range(2 + i)]),
                "GENERIC_EVENT_TYPES": (TYPES, [(8, 50, None, None)]),
                "GENERIC_EVENT_SOURCES": (SOURCES, [(50, None, 3, 0, '{"Name":"Counters"}')]),
                "PROCESSES": (("globalPid", "name"), [(MAIN >> 24 << 24, "network_plugin")]),
            }
        else:
            texts = [(t, t, 8, f'{{"rx_bytes":"{t}","load":"{t / 7}"}}') for t in times]
            tables |= {
                "GENERIC_EVENTS": (OLD_EVENTS, texts),
                "GENERIC_EVENT_TYPES": (OLD_TYPES, [(8, 50, '{"Fields":[{"Name":"rx_bytes"},{"Name":"load"}]}')]),
                "GENERIC_EVENT_SOURCES": (OLD_SOURCES, [(50, '{"Name":"Counters"}')]),
            }
        reports.append(
            export(folder / f"node{i}.sqlite", ["cudaFree", "rx_bytes", "tx_bytes", "load"], tables, UTC + i)
        )
    return reports


def _make_value(field: int, value: int) -> tuple[object, ...]:
    """Return the columns of a value as an integer, signed or not, or a real number."""
    return tuple(value if column == (0, 1, 3)[field] else None for column in range(4))
