"""Reads network metrics of the node's cards and of the InfiniBand switches that nsys observed.

A row of a table contains one metric of a port from `start` to `end`, mostly as a rate per ms (of bytes, packets, ticks:
the unit is in the label). It is shown from `start`. Each card and switch has a row in the task of the node, and so has
each port, except the first port of a card.

No capture with such rows was available. The columns follow NVIDIA's schema reference (User Guide, "SQLite Schema
Reference", of 2024 and 2026) and the empty tables that nsys 2023.4 exports. nsys's report network_congestion shows that
NIC_ID_MAP identifies cards, that the globalId of a switch is its GUID and that values are rates per ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import encode_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.objects.places import NodePart
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.records.columns import Pair, make_events
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.sources.shared.reasons import NO_DEVICE, NO_TIME, lacks_time
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_name_pair, make_number_pair
from nsys2prv_ng.sources.shared.samples import Key, add_node_samples, read_blocks
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

NIC, SWITCH = "NIC", "IB switch"
"""The first words of the rows' names."""

_COLUMNS = ("start", "globalId", "metricsListId", "metricsIdx", "value")
NIC_METRIC = Table("NET_NIC_METRIC", _COLUMNS, {"portId": NULL})
SWITCH_METRIC = Table("NET_IB_SWITCH_METRIC", _COLUMNS, {"portId": NULL})
METRICS = Table("TARGET_INFO_NETWORK_METRICS", ("metricsListId", "metricsIdx"), text=("name", "unit"))
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


def read(reader: ReportReader) -> Result:
    """Return a line for each sample of each port, and a point for each packet that a switch reported as congested."""
    result = Result()
    rows = reader.list_rows(METRICS.name, "metricsListId", "metricsIdx", "name", "unit")
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
    columns = reader.columns(CONGESTION.name)
    result.read += columns.rows
    time, device = columns["start"], columns["globalId"]
    rows = result.drop_rows({NO_TIME: lacks_time(time), NO_DEVICE: device == NULL})
    device = device[rows]
    switch, first = encode_rows(device)
    parts = [_make_part(switches, SWITCH, (guid, NULL)) for guid in device[first].tolist()]
    place = reader.places.node_parts([part for part in parts if part is not None])[switch]
    result.records.append(make_events(place, time[rows], _describe_packets(reader, columns, rows)))


def _describe_packets(reader: ReportReader, columns: Columns, rows: IntArray) -> list[Pair]:
    """Return pairs for the kind of congestion and for the known facts about the packet."""
    labels = dict(reader.list_rows(CONGESTION_KINDS.name, "id", "label"))
    kinds = columns["congestionType"][rows]
    kind, first = encode_rows(kinds)
    names = ["unknown" if code == NULL else labels.get(code) or f"type {code}" for code in kinds[first].tolist()]
    return [
        make_name_pair(reader.labels, types.IB_CONGESTION, kind, names),
        *(make_number_pair(reader.labels, event_type, columns[name][rows]) for name, event_type in _PACKET.items()),
    ]


SOURCE = Source(
    source_names.NETWORK_METRICS,
    "Metrics of network cards and InfiniBand switches",
    (NIC_METRIC, SWITCH_METRIC, METRICS, NIC_IDS, NICS, SWITCHES, CONGESTION, CONGESTION_KINDS),
    read,
    counted_tables=(EventRows(NIC_METRIC.name), EventRows(SWITCH_METRIC.name), EventRows(CONGESTION.name)),
    noun="values",
)
