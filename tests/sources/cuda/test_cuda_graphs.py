"""CUDA graphs, traced as a whole and by node, against plain SQL; lines of launches over several kinds of node."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import NO_REPORTS, REPORTS, SAMPLES
from tests.sources.small_reports import MAIN, PROCESS, export, get_account, read_rows, read_utc, translate_reports
from tests.trace_reader import pair_intervals

GRAPH, GRAPH_ID, EXEC_ID, NODE_ID, CREATION, ORIGINAL = 63000008, 63000100, 63000101, 63000102, 63000103, 63000104
KERNEL, MEMORY, CORRELATION = 63000006, 63000001, 9200
RUNNING = 1


def _single_node() -> Path:
    if not REPORTS.is_dir():
        pytest.skip(NO_REPORTS)
    return REPORTS / "gpu/single-node.sqlite"


@pytest.mark.slow
def test_launches_traced_as_a_whole(tmp_path: Path) -> None:
    report = SAMPLES / "single-graph.sqlite"
    trace, summary = translate_reports([report], tmp_path / "x.prv", "cuda_graphs,cuda_api,launch_lines")
    zero = read_utc(report) - summary.start_utc_ns
    launches = read_rows(
        report, "SELECT start, end, streamId, graphId, graphExecId, correlationId FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    )
    assert len(launches) == 20
    launched = pair_intervals(trace, GRAPH)
    at = {number: trace.get_attribute(number) for number in (GRAPH_ID, EXEC_ID, CORRELATION)}
    assert sorted(
        (
            launch.begin - zero,
            launch.end - zero,
            trace.names["THREAD"][launch.row],
            trace.values[GRAPH][launch.value],
            at[EXEC_ID][launch.line],
            at[CORRELATION][launch.line],
        )
        for launch in launched.itertuples()
    ) == sorted((b, e, f"CUDA-D0.S{stream}", f"graph {g}", x, c) for b, e, stream, g, x, c in launches)
    assert at[GRAPH_ID].loc[launched["line"]].tolist() == [g for *_, g, _, _ in sorted(launches)]

    # The stream runs as long as its graphs do.
    rows = set(launched["row"])
    states = trace.states[trace.states["row"].isin(rows)]
    assert set(states["state"]) == {RUNNING}
    assert (states["end"] - states["begin"]).sum() == sum(end - begin for begin, end, *_ in launches)

    # A line leads from each launch.
    calls = dict(read_rows(report, "SELECT correlationId, start FROM CUPTI_ACTIVITY_KIND_RUNTIME"))
    lines = trace.communications[trace.communications["receive_row"].isin(rows)]
    lines = lines[lines["receive_logical"].isin(launched["begin"])]
    expected = Counter((calls[c] + zero, b + zero, 0, 55001) for b, _, _, _, _, c in launches)
    assert (
        Counter(lines[["send_logical", "receive_logical", "size", "tag"]].itertuples(index=False, name=None))
        == expected
    )


@pytest.mark.slow
def test_graphs_that_were_made(tmp_path: Path) -> None:
    report = SAMPLES / "single-graph.sqlite"
    trace, summary = translate_reports([report], tmp_path / "x.prv", "cuda_graphs")
    zero = read_utc(report) - summary.start_utc_ns
    made = read_rows(
        report,
        """SELECT e.start, s.value, e.graphId, e.graphExecId, e.globalTid & 0xFFFFFF FROM CUDA_GRAPH_EVENTS e
        JOIN StringIds s ON s.id = e.nameId ORDER BY e.start""",
    )
    assert [row[2] for row in made] == [1, 2, 3, 1]
    points = trace.events[trace.events["type"] == CREATION]
    graph, executable = trace.get_attribute(GRAPH_ID), trace.get_attribute(EXEC_ID)
    assert [
        (p.time - zero, trace.values[CREATION][p.value], graph.get(p.line), executable.get(p.line))
        for p in points.itertuples()
    ] == [row[:4] for row in made]


@pytest.mark.slow
def test_nodes_of_graphs(tmp_path: Path) -> None:
    report = _single_node()
    trace, summary = translate_reports(
        [report], tmp_path / "x.prv", "cuda_graphs,kernels,memory_operations,cuda_api,launch_lines"
    )
    zero = read_utc(report) - summary.start_utc_ns
    kernels = read_rows(
        report, "SELECT start, correlationId, graphNodeId FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId IS NOT NULL"
    )
    assert len(kernels) == 480
    node, correlation = trace.get_attribute(NODE_ID), trace.get_attribute(CORRELATION)
    begun = trace.events[(trace.events["type"] == KERNEL) & (trace.events["value"] != 0)]
    nodes = Counter(
        (e.time - zero, correlation[e.line], node[e.line]) for e in begun.itertuples() if e.line in node.index
    )
    assert nodes == Counter(kernels)

    made = read_rows(report, "SELECT start, graphNodeId, originalGraphNodeId FROM CUDA_GRAPH_NODE_EVENTS")
    points = trace.events[trace.events["type"] == CREATION]
    original = trace.get_attribute(ORIGINAL)
    assert Counter((p.time - zero, node[p.line], original.get(p.line)) for p in points.itertuples()) == Counter(made)

    # One line for each launch, to its first kernel.
    first = {}
    for start, launch, _ in sorted(kernels):
        first.setdefault(launch, start)
    received = trace.communications["receive_logical"] - zero
    graph_starts = {start for start, _, _ in kernels}
    assert sorted(time for time in received if time in graph_starts) == sorted(first.values())
    assert len(first) == 20
    assert get_account(summary, "launch_lines").dropped == {"later operation of the same launch and stream": 460}


# ---- what the reports do not hold ------------------------------------------------------------------------------------

OPERATION = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "correlationId", "graphNodeId")
STRINGS = ["kernel", "cudaGraphLaunch_v10000", "Graph Creation"]
CALLS = (
    ("start", "end", "globalTid", "nameId", "correlationId"),
    [(0, 10, MAIN, 1, 1), (100, 110, MAIN, 1, 2), (300, 310, MAIN, 1, 3)],
)


def test_a_launch_with_nodes_of_several_kinds_has_one_line(tmp_path: Path) -> None:
    def node(start: int, stream: int, correlation: int, number: int | None) -> tuple[int | None, ...]:
        return start, start + 5, PROCESS, 0, 1, stream, correlation, number

    tables = {
        "CUPTI_ACTIVITY_KIND_RUNTIME": CALLS,
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            (*OPERATION, "shortName", "demangledName", "graphId"),
            [
                (*node(30, 7, 1, 11), 0, 0, 4),
                (*node(50, 8, 1, 12), 0, 0, 4),
                (*node(120, 7, 2, None), 0, 0, None),
                (*node(320, 7, 3, 0), 0, 0, 0),
            ],
        ),
        "CUPTI_ACTIVITY_KIND_MEMCPY": (
            (*OPERATION, "bytes", "copyKind"),
            [(*node(20, 7, 1, 13), 64, 1), (*node(60, 8, 1, 14), 32, 2)],
        ),
        "CUPTI_ACTIVITY_KIND_MEMSET": ((*OPERATION, "bytes"), [(*node(40, 7, 1, 15), 16), (*node(45, 9, 1, 16), 8)]),
    }
    report = export(tmp_path / "a.sqlite", STRINGS, tables)
    trace, summary = translate_reports([report], tmp_path / "x.prv", "cuda_api,kernels,memory_operations,launch_lines")
    lines = trace.communications[["send_logical", "receive_logical", "size", "tag"]].itertuples(index=False, name=None)
    assert sorted(lines) == [
        (0, 20, 64, 55002),  # stream 7 begins with a copy
        (0, 45, 8, 55002),
        (0, 50, 0, 55001),  # stream 8 with a kernel
        (100, 120, 0, 55001),
        (300, 320, 0, 55001),
    ]
    assert get_account(summary, "launch_lines").dropped == {"later operation of the same launch and stream": 3}
    nodes = trace.events[trace.events["type"] == NODE_ID]
    assert sorted(zip(nodes["time"], nodes["value"], strict=True)) == [
        (20, 13),
        (30, 11),
        (40, 15),
        (45, 16),
        (50, 12),
        (60, 14),
    ]
    graphs = trace.events[trace.events["type"] == GRAPH_ID]
    assert sorted(zip(graphs["time"], graphs["value"], strict=True)) == [(30, 4), (50, 4)]


def test_graphs_beside_other_operations_of_their_stream(tmp_path: Path) -> None:
    graph = (*OPERATION[:-1], "graphId", "graphExecId")
    tables = {
        "CUPTI_ACTIVITY_KIND_RUNTIME": CALLS,
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            (*OPERATION[:-1], "shortName", "demangledName"),
            [(10, 50, PROCESS, 0, 1, 7, 1, 0, 0)],
        ),
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
            graph,
            [
                (40, 90, PROCESS, 0, 1, 7, 2, 5, 6),
                (90, 95, PROCESS, 0, 1, 7, 9, None, None),
                (80, 70, PROCESS, 0, 1, 7, 3, 5, 6),
                (0, 0, PROCESS, 0, 1, 7, 3, 5, 6),
                (1, 2, None, 0, 1, 7, 3, 5, 6),
            ],
        ),
        "CUDA_GRAPH_EVENTS": (
            ("start", "globalTid", "nameId", "originalGraphId", "graphId"),
            [(5, MAIN, 2, 3, 4), (6, None, 2, None, 4), (None, MAIN, 2, None, 4), (2**63 - 1, MAIN, 2, None, 4)],
        ),
    }
    report = export(tmp_path / "a.sqlite", STRINGS, tables)
    trace, summary = translate_reports([report], tmp_path / "x.prv", "kernels,cuda_graphs,launch_lines,cuda_api")
    intervals = pair_intervals(trace, GRAPH, KERNEL)
    first = trace.names["THREAD"].index("CUDA-D0.S7")
    assert trace.names["THREAD"][first + 1] == "CUDA-D0.S7"
    assert sorted(zip(intervals["begin"], intervals["end"], intervals["row"], intervals["type"], strict=True)) == [
        (10, 50, first, KERNEL),
        (40, 90, first + 1, GRAPH),
        (90, 95, first, GRAPH),
    ]
    assert get_account(summary, "cuda_graphs").dropped == {
        "ends before it starts": 1,
        "no time (start and end are 0)": 1,
        "no process, device, context or stream": 1,
        "no thread": 1,
        "no time": 2,
    }
    assert get_account(summary, "launch_lines").dropped == {
        "its operation was dropped": 3,
        "no call recorded with its correlation id": 1,
    }
    original = trace.events[trace.events["type"] == ORIGINAL]
    assert original[["time", "value"]].to_numpy().tolist() == [[5, 3]]
