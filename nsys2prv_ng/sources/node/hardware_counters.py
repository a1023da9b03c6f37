"""Reads counters of a node's hardware: CPU cores, the system on chip, network cards, and InfiniBand switches.

A row of a table contains the counts, or a metric of a port, from `start` to `end`, and is shown from `start`. Metrics
of the network are mostly rates per ms (of bytes, packets, ticks: the unit is in the label). Each core, or other
component with counters, each card and each switch has a row in the task of the node, and so has each port, except the
first port of a card.

No capture with such rows was available. The columns follow NVIDIA's schema reference (User Guide, "SQLite Schema
Reference", of 2024 and 2026) and the empty tables that nsys 2023.4 exports. Raw counters have the numbers of nsys2prv.
nsys's report network_congestion shows that NIC_ID_MAP identifies cards, that the globalId of a switch is its GUID and
that values are rates per ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays import row_keys as keys
from nsys2prv_ng.arrays.types import IntArray, mark, pick
from nsys2prv_ng.objects.places import NodePart
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.records.columns import make_events
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.shared import reasons
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_name_pair, make_number_pair
from nsys2prv_ng.sources.shared.samples import Key, add_node_samples, make_block, read_blocks, scale_values
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

_VALUES = "CPU counters"

_PREFIXES = ("PERF_EVENT_CPU", "PERF_EVENT_SOC_OR_CPU")
"""The first of the names of tables up to 2024.2, and of later ones."""
RAW = tuple(
    Table(f"{prefix}_RAW_EVENT", ("start", "componentId", "eventId", "count"), {"vmId": NULL}) for prefix in _PREFIXES
)
METRIC = tuple(
    Table(f"{prefix}_METRIC_EVENT", ("start", "componentId", "metricId"), {"vmId": NULL}, real=("value",))
    for prefix in _PREFIXES
)
METRICS = Table("TARGET_INFO_PERF_METRIC", ("id",), text=("name", "unit"))
COMPONENTS = Table("TARGET_INFO_COMPONENT", ("componentId",), {"instance": NULL}, text=("name",))

PMU = Table("PMU_EVENTS", ("start", "cpu", "counter_id"), {"globalVm": NULL})
PMU_VALUES = Table("PMU_EVENT_COUNTERS", ("id", "idx", "value"))
PMU_NAMES = Table("PMU_EVENT_REQUESTS", ("id",), text=("event_name",))

SOC = Table("SOC_METRICS", ("typeId", "metricId", "value"), {"timestamp": NULL, "rawTimestamp": NULL})
SOC_NAMES = Table("TARGET_INFO_SOC_METRICS", ("typeId", "metricId"), text=("typeName", "metricName"))


def read_cpu_counters(reader: ReportReader) -> Result:
    """Return a line for each sample of each core or other component."""
    result = Result()
    _add_perf(reader, result)
    _add_pmu(reader, result)
    _add_soc(reader, result)
    return result


# ---- counters by perf events -----------------------------------------------------------------------------------------


def _add_perf(reader: ReportReader, result: Result) -> None:
    texts = {number: (name, unit) for number, name, unit in reader.list_rows(METRICS.name, "id", "name", "unit")}

    def make_type(key: Key, *, real: bool) -> EventType:
        name, unit = texts.get(key[0], ("", ""))
        name = name or f"CPU {'metric' if real else 'counter'} {key[0]}"
        counter_id = -1 if real else key[0]
        return families.make_node_metric(source_names.CPU_COUNTERS, name, unit or "", counter_id=counter_id, real=real)

    rows = reader.list_rows(COMPONENTS.name, "componentId", "instance", "name")
    names = {number: name if instance == NULL else f"{name} {instance}" for number, instance, name in rows if name}
    get_component = partial(_get_component, names)
    for raw_table in RAW:
        blocks = read_blocks(reader, raw_table, ("vmId", "componentId"), ("eventId",), "count")
        add_node_samples(reader, result, blocks, get_component, partial(make_type, real=False), _VALUES)
    for metric_table in METRIC:
        columns = reader.columns(metric_table.name)
        device = [columns["vmId"], columns["componentId"]]
        block = make_block(columns["start"], device, [columns["metricId"]], scale_values(columns.reals["value"]))
        add_node_samples(reader, result, [block], get_component, partial(make_type, real=True), _VALUES)


def _get_component(names: Mapping[int, str], key: Key) -> NodePart | None:
    """Return the component for (virtual machine, id); an id without a name is the number of a core."""
    return None if key[1] == NULL else NodePart(names.get(key[1], f"CPU {key[1]}"), key)


# ---- counters of the performance monitoring unit ---------------------------------------------------------------------


def _add_pmu(reader: ReportReader, result: Result) -> None:
    """Add the values of PMU events. Each event has a time, a core and several values."""
    events, values = reader.columns(PMU.name), reader.columns(PMU_VALUES.name)
    counter_names = dict(reader.list_rows(PMU_NAMES.name, "id", "event_name"))
    ids = events["counter_id"]
    known = np.flatnonzero(ids != NULL)
    event = keys.find_rows([ids[known]], [values["id"]])
    counted = mark(known[event[event >= 0]], events.rows)
    result.read += int((~counted).sum())
    result.drop(reasons.NO_VALUES, int((~counted).sum()))

    def take_by_value(name: str) -> IntArray:
        return pick(events[name][known], event, NULL)

    device = [take_by_value("globalVm"), take_by_value("cpu")]
    block = make_block(take_by_value("start"), device, [values["idx"]], values["value"])

    def make_counter(key: Key) -> EventType:
        name = counter_names.get(key[0]) or f"PMU counter {key[0]}"
        return families.make_node_metric(source_names.CPU_COUNTERS, name)

    add_node_samples(reader, result, [block], partial(_get_component, {}), make_counter, _VALUES)


# ---- metrics of the system on chip -----------------------------------------------------------------------------------


def _add_soc(reader: ReportReader, result: Result) -> None:
    """Add metrics of the system on chip, whose table is like the table of GPU metrics."""
    rows = reader.list_rows(SOC_NAMES.name, "typeId", "metricId", "metricName")
    metric_names: dict[Key, str | None] = {(type_id, metric_id): name for type_id, metric_id, name in rows}

    def get_device(key: Key) -> NodePart | None:
        return None if key[0] == NULL else NodePart("SoC", key)

    def make_metric(key: Key) -> EventType:
        stem, unit = families.split_name_and_unit(metric_names.get(key) or f"SoC metric {key[1]}")
        return families.make_node_metric(source_names.CPU_COUNTERS, stem, unit)

    blocks = read_blocks(reader, SOC, ("typeId",), ("typeId", "metricId"))
    add_node_samples(reader, result, blocks, get_device, make_metric, "SoC metrics")


CPU_COUNTERS = Source(
    source_names.CPU_COUNTERS,
    "Counters of CPU cores and of the system on chip",
    (*RAW, *METRIC, METRICS, COMPONENTS, PMU, PMU_VALUES, PMU_NAMES, SOC, SOC_NAMES),
    read_cpu_counters,
    counted_tables=tuple(EventRows(table.name) for table in (*RAW, *METRIC, PMU, SOC)),
    noun="values",
)


# ---- network cards and switches --------------------------------------------------------------------------------------


NIC, SWITCH = "NIC", "IB switch"
"""The first words of the rows' names."""

_NETWORK_COLUMNS = ("start", "globalId", "metricsListId", "metricsIdx", "value")
NIC_METRIC = Table("NET_NIC_METRIC", _NETWORK_COLUMNS, {"portId": NULL})
SWITCH_METRIC = Table("NET_IB_SWITCH_METRIC", _NETWORK_COLUMNS, {"portId": NULL})
NETWORK_METRICS = Table("TARGET_INFO_NETWORK_METRICS", ("metricsListId", "metricsIdx"), text=("name", "unit"))
NIC_IDS = Table("NIC_ID_MAP", ("nicId", "globalId"))
NICS = Table("TARGET_INFO_NIC_INFO", ("nicId",), text=("name",))
SWITCHES = Table("NET_IB_DEVICE_INFO", (), {"guid": NULL}, text=("name", "des"))

_PACKET = {
    "packetSLID": types.IB_CONGESTION_FROM,
    "packetDLID": types.IB_CONGESTION_TO,
    "switchIngressPort": types.IB_CONGESTION_IN,
    "switchEgressPort": types.IB_CONGESTION_OUT,
}
CONGESTION = Table(
    "NET_IB_SWITCH_CONGESTION_EVENT", ("start", "globalId"), dict.fromkeys(("congestionType", *_PACKET), NULL)
)
CONGESTION_KINDS = Table("ENUM_NET_IB_CONGESTION_EVENT_TYPE", ("id",), text=("label",))


def read_network(reader: ReportReader) -> Result:
    """Return a line for each sample of each port, and a point for each packet that a switch reported as congested."""
    result = Result()
    rows = reader.list_rows(NETWORK_METRICS.name, "metricsListId", "metricsIdx", "name", "unit")
    metrics: dict[Key, tuple[str, str]] = {(number, i): (name, unit or "") for number, i, name, unit in rows if name}
    nic_names = dict(reader.list_rows(NICS.name, "nicId", "name"))
    nics = {i: name for i, nic in reader.list_rows(NIC_IDS.name, "globalId", "nicId") if (name := nic_names.get(nic))}
    devices = reader.list_rows(SWITCHES.name, "guid", "name", "des")
    switches = {guid: name or description for guid, name, description in devices if name or description}

    def make_metric(key: Key) -> EventType:
        name, unit = metrics.get(key, (f"Network metric {key[0]}.{key[1]}", ""))
        return families.make_node_metric(source_names.NETWORK_METRICS, name, unit)

    for table, names, kind in ((NIC_METRIC, nics, NIC), (SWITCH_METRIC, switches, SWITCH)):
        blocks = read_blocks(reader, table, ("globalId", "portId"), ("metricsListId", "metricsIdx"))
        add_node_samples(reader, result, blocks, partial(_make_part, names, kind), make_metric, "network metrics")
    _add_congestion(reader, result, switches)
    return result


def _make_part(names: Mapping[int, str], kind: str, device: Key) -> NodePart | None:
    """Return the part with a globalId and port. Most cards have one port (1 in InfiniBand), which their names omit."""
    global_id, port = device
    if global_id == NULL:
        return None
    name = f"{kind} {names.get(global_id) or format(global_id & (1 << 64) - 1, 'x')}"
    suffix = "" if port == NULL or (kind == NIC and port in (0, 1)) else f" port {port}"
    return NodePart(name, (global_id,), port, suffix)


# ---- congestion ------------------------------------------------------------------------------------------------------


def _add_congestion(reader: ReportReader, result: Result, switches: Mapping[int, str]) -> None:
    """Add a point for each congested packet, with the kind of congestion and the known facts about the packet."""
    columns = reader.columns(CONGESTION.name)
    result.read += columns.rows
    time, device = columns["start"], columns["globalId"]
    rows = result.drop_rows({**reasons.find_unsound_points(time), reasons.NO_DEVICE: device == NULL})
    switch, first = keys.encode_rows(device[rows])
    parts = [_make_part(switches, SWITCH, (guid, NULL)) for guid in device[rows[first]].tolist()]
    place = reader.places.node_parts([part for part in parts if part is not None])[switch]
    labels = dict(reader.list_rows(CONGESTION_KINDS.name, "id", "label"))
    kinds = columns["congestionType"][rows]
    kind, first = keys.encode_rows(kinds)
    names = ["unknown" if code == NULL else labels.get(code) or f"type {code}" for code in kinds[first].tolist()]
    pairs = [
        make_name_pair(reader.labels, types.IB_CONGESTION, kind, names),
        *(make_number_pair(reader.labels, event_type, columns[name][rows]) for name, event_type in _PACKET.items()),
    ]
    result.records.append(make_events(place, time[rows], pairs))


NETWORK = Source(
    source_names.NETWORK_METRICS,
    "Metrics of network cards and InfiniBand switches",
    (NIC_METRIC, SWITCH_METRIC, NETWORK_METRICS, NIC_IDS, NICS, SWITCHES, CONGESTION, CONGESTION_KINDS),
    read_network,
    counted_tables=(EventRows(NIC_METRIC.name), EventRows(SWITCH_METRIC.name), EventRows(CONGESTION.name)),
    noun="values",
)
