"""Reads CUDA graphs: launches traced as a whole on their stream, and the creation of graphs and nodes on host threads.

If nsys traced the nodes of graphs instead, the nodes are kernels, copies and sets with the id of their node.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.records.columns import Pair, make_events, make_intervals
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.sources.cuda.device_operations import COLUMNS, GRAPH, select_operations
from nsys2prv_ng.sources.shared.reasons import NO_THREAD, NO_TIME, lacks_time
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_id_pair, make_name_pair, make_number_pair
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

_LAUNCH_IDS = {"graphId": types.GRAPH_ID, "graphExecId": types.GRAPH_EXEC_ID, "correlationId": types.CORRELATION}
TABLE = Table(GRAPH, COLUMNS, dict.fromkeys(_LAUNCH_IDS, NULL))

_CREATION = ("start", "globalTid", "nameId")
_CREATION_IDS = {
    "graphId": types.GRAPH_ID,
    "graphExecId": types.GRAPH_EXEC_ID,
    "graphNodeId": types.GRAPH_NODE_ID,
    "originalGraphId": types.GRAPH_ORIGINAL_ID,
    "originalGraphNodeId": types.GRAPH_ORIGINAL_ID,
}
# Up to 2023 this table contained nodes: the ids of graphs came with the table of nodes.
GRAPHS_TABLE = Table("CUDA_GRAPH_EVENTS", _CREATION, dict.fromkeys(_CREATION_IDS, NULL))
NODES_TABLE = Table("CUDA_GRAPH_NODE_EVENTS", _CREATION, dict.fromkeys(("graphNodeId", "originalGraphNodeId"), NULL))


def read(reader: ReportReader) -> Result:
    """Return an interval for each launch of a graph, and a point for each created graph, executable graph and node."""
    result = Result()
    _add_launches(reader, result)
    for table in (GRAPHS_TABLE, NODES_TABLE):
        _add_creations(reader, result, reader.columns(table.name))
    return result


GRAPH_COLUMNS = ("graphNodeId", "graphId")
"""Columns of device operations with the node and graph of an operation."""


def read_graph_ids(reader: ReportReader, columns: Columns, rows: IntArray) -> list[Pair]:
    """Return the ids of the node and, if the export has them, of the graph of these device operations."""
    pairs = []
    for name, event_type in zip(GRAPH_COLUMNS, (types.GRAPH_NODE_ID, types.GRAPH_ID), strict=True):
        value = columns[name][rows]
        known = (value != NULL) & (value != 0)  # CUPTI writes 0 if there is no graph
        if known.any():
            pairs.append(Pair(reader.labels.handle(event_type), value, known))
    return pairs


def _add_launches(reader: ReportReader, result: Result) -> None:
    """Add an interval for each launch of a graph that was traced as a whole."""
    columns = reader.columns(GRAPH)
    rows, place, begin, end = select_operations(reader, result, GRAPH)
    labels = reader.labels
    graphs, index = np.unique(columns["graphId"][rows], return_inverse=True)
    names = ["graph" if graph == NULL else f"graph {graph}" for graph in graphs]
    launch = make_name_pair(labels, types.GRAPH_LAUNCH, index, names)
    ids = (make_number_pair(labels, event_type, columns[name][rows]) for name, event_type in _LAUNCH_IDS.items())
    result.records.append(make_intervals(place, begin, end, [launch, *ids], [launch.handle]))
    result.add_states(place, begin, end, types.RUNNING)


def _add_creations(reader: ReportReader, result: Result, columns: Columns) -> None:
    """Add a point for each row of a table of created graphs or nodes."""
    result.read += columns.rows
    rows = result.drop_rows({NO_THREAD: columns["globalTid"] == NULL, NO_TIME: lacks_time(columns["start"])})
    labels = reader.labels
    pairs = [make_id_pair(reader, types.GRAPH_CREATION, columns["nameId"][rows])]
    for name, event_type in _CREATION_IDS.items():
        if name in columns.numbers:
            pairs.append(make_number_pair(labels, event_type, columns[name][rows]))
    place = reader.places.threads(columns["globalTid"][rows], application=True)
    result.records.append(make_events(place, columns["start"][rows], pairs))


SOURCE = Source(
    source_names.CUDA_GRAPHS,
    "CUDA graphs",
    (TABLE, GRAPHS_TABLE, NODES_TABLE),
    read,
    counted_tables=(
        EventRows(GRAPH, "globalPid", device="deviceId"),
        EventRows(GRAPHS_TABLE.name, "globalTid"),
        EventRows(NODES_TABLE.name, "globalTid"),
    ),
    noun="launches, creations",
    load=LoadCost(events=1.5, pairs=3.5),
)
