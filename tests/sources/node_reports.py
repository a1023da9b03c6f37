"""Tables of metrics of a node with the columns that nsys gives them, and what a trace shows of them."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from tests.sources.small_reports import Rows
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


def nic_tables(rows: Sequence[Sequence[object]], columns: Sequence[str] = METRIC) -> dict[str, Rows]:
    """Metrics of two cards, of which the first has a name."""
    return {
        "NET_NIC_METRIC": (columns, rows),
        "TARGET_INFO_NETWORK_METRICS": (NETWORK_METRICS, NAMES),
        "NIC_ID_MAP": (("nicId", "globalId"), [(3, CARD)]),
        "TARGET_INFO_NIC_INFO": (NICS, [(-5, "Local (CLI)", 3, "mlx5_0", 4129, 5555, 2)]),
    }


def lines(trace: Trace) -> list[tuple[str, int, dict[str, int | str]]]:
    """Row, time and values (by label, as their own labels where they have some) of each line of events, in order."""
    found = []
    for _, line in trace.events.groupby("line"):
        row, time = trace.names["THREAD"][line["row"].iloc[0]], int(line["time"].iloc[0])
        said = {}
        for number, value in zip(line["type"].tolist(), line["value"].tolist(), strict=True):
            said[trace.types[number]] = trace.values.get(number, {}).get(value, value)
        found.append((row, time, said))
    return found


def frame_of(trace: Trace) -> pd.DataFrame:
    """Row, label of the type, time and value of each event."""
    events = trace.events
    return pd.DataFrame(
        {
            "row": [trace.names["THREAD"][row] for row in events["row"]],
            "name": [trace.types[number] for number in events["type"]],
            "time": events["time"],
            "value": events["value"],
        }
    )
