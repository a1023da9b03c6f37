"""Reads hardware counters of CPU cores and of the system on chip, and the metrics that nsys derives from them.

A row of a table contains the counts from `start` to `end`, and is shown from `start`. Each core, or other component
with counters, has a row in the task of the node.

No capture with such rows was available. The columns follow NVIDIA's schema reference (User Guide, "SQLite Schema
Reference", of 2024 and 2026) and the empty tables that nsys 2023.4 exports. Raw counters have the numbers of nsys2prv.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays import row_keys as keys
from nsys2prv_ng.arrays.pick import pick
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.objects.places import NodePart
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.shared.reasons import NO_VALUES
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.samples import Key, add_node_samples, make_block, read_blocks, scale_values
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

_VALUES = "CPU counters"

# Up to 2024.2 the names lack SOC_OR.
RAW = tuple(
    Table(f"PERF_EVENT_{what}_RAW_EVENT", ("start", "componentId", "eventId", "count"), {"vmId": NULL})
    for what in ("CPU", "SOC_OR_CPU")
)
METRIC = tuple(
    Table(f"PERF_EVENT_{what}_METRIC_EVENT", ("start", "componentId", "metricId"), {"vmId": NULL}, real=("value",))
    for what in ("CPU", "SOC_OR_CPU")
)
METRICS = Table("TARGET_INFO_PERF_METRIC", ("id",), text=("name", "unit"))
COMPONENTS = Table("TARGET_INFO_COMPONENT", ("componentId",), {"instance": NULL}, text=("name",))

PMU = Table("PMU_EVENTS", ("start", "cpu", "counter_id"), {"globalVm": NULL})
PMU_VALUES = Table("PMU_EVENT_COUNTERS", ("id", "idx", "value"))
PMU_NAMES = Table("PMU_EVENT_REQUESTS", ("id",), text=("event_name",))

SOC = Table("SOC_METRICS", ("typeId", "metricId", "value"), {"timestamp": NULL, "rawTimestamp": NULL})
SOC_NAMES = Table("TARGET_INFO_SOC_METRICS", ("typeId", "metricId"), text=("typeName", "metricName"))


def read(reader: ReportReader) -> Result:
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
    counted = np.zeros(events.rows, np.bool_)
    counted[known[event[event >= 0]]] = True
    result.read += int((~counted).sum())
    result.drop(NO_VALUES, int((~counted).sum()))

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


SOURCE = Source(
    source_names.CPU_COUNTERS,
    "Counters of CPU cores and of the system on chip",
    (*RAW, *METRIC, METRICS, COMPONENTS, PMU, PMU_VALUES, PMU_NAMES, SOC, SOC_NAMES),
    read,
    counted_tables=tuple(EventRows(table.name) for table in (*RAW, *METRIC, PMU, SOC)),
    noun="values",
)
