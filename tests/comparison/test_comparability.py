"""What makes runs not comparable: planted one by one, and found in real reports as plain SQL finds it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nsys2prv_ng.comparison.comparability import NOTE, WARNING, check_comparability
from nsys2prv_ng.comparison.model import Comparability, Finding, Side
from nsys2prv_ng.comparison.sentences import list_findings
from nsys2prv_ng.sources.registry import SOURCES
from nsys2prv_ng.summary.job import JobFacts, JobSummary
from tests.comparison.made_runs import hide_in_graphs, make_facts, make_gpu, make_run
from tests.conftest import Unpacked, unpack
from tests.report_sets import sets
from tests.report_truth import Report
from tests.summary.made import summarize_reports
from tests.summary.made_waits import NO_WAITS
from tests.summary.test_command import without
from tests.translated import changed

A = make_run("a", [800] * 2, 100)
FACTS = make_facts(captures=["other"])


def other(**changes: Any) -> Side:
    """Another run, which is like A but for some fields of its summary."""
    return Side("b", replace(A.summary, **{"facts": FACTS, **changes}))


def with_facts(**changes: Any) -> Side:
    return other(facts=replace(FACTS, **changes))


def found(*sides: Side) -> list[tuple[str, str, set[str]]]:
    return [(own.severity, own.text, set(own.prevents)) for own in check_comparability(sides).findings]


def test_alike_runs() -> None:
    comparability = check_comparability([A, other(), make_run("c", [700] * 2, 90)])
    assert comparability == Comparability([]) and comparability.prevented == frozenset()
    assert list_findings(comparability, str) == []


# ---- planted differences ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("side", "severity", "text", "prevents"),
    [
        (
            other(gpus=[make_gpu(0, "NVIDIA A100"), make_gpu(1)]),
            WARNING,
            "GPU model: NVIDIA H200 (a) vs NVIDIA A100, NVIDIA H200 (b)",
            {"scaling", "gate"},
        ),
        (
            other(efficiency=None, gpus=[make_gpu(0)]),
            WARNING,
            "number of GPUs: 2 (a) vs 1 (b)",
            {"gpus", "ranks", "gate"},
        ),
        (other(ranks=1024), WARNING, "number of processes: 2 (a) vs 1,024 (b)", {"gpus", "ranks", "gate"}),
        (other(nodes=2), NOTE, "number of nodes: 1 (a) vs 2 (b)", set()),
        (other(chosen=["time"]), WARNING, "chosen part: everything (a) vs time (b)", set()),
        (other(chosen=["ranks"]), WARNING, "chosen part: everything (a) vs ranks (b)", {"scaling"}),
        (with_facts(programs=["gromacs"]), WARNING, "program: python3 (a) vs gromacs (b)", {"gate"}),
        (other(steps=None), WARNING, "steps: step (a) vs none (b)", {"steps"}),
        (
            with_facts(sources={"kernels": 1}),
            WARNING,
            "NVTX ranges and marks: in a, not in b (not traced or not used)",
            {"ranges"},
        ),
        (
            with_facts(sources={"nvtx": 1}),
            WARNING,
            "CUDA kernels: in a, not in b (not traced or not used)",
            {"gpus", "activity", "kernels", "nccl", "collectives", "waits", "efficiencies", "critical_path"},
        ),
        (
            with_facts(sources={"kernels": 1, "nvtx": 1, "os_runtime": 2}),
            WARNING,
            "OS runtime calls: in b, not in a (not traced or not used)",
            set(),
        ),
        (
            with_facts(lost_data_messages=3),
            WARNING,
            "nsys reports in 3 messages that data of b is missing: counts may be too low",
            set(),
        ),
        (
            with_facts(lacks_ranks=True),
            WARNING,
            "some ranks of b have no report: sums are of a part of the job",
            {"scaling"},
        ),
        (with_facts(nsys_versions=["2024.1"]), NOTE, "version of nsys: 2025.3.2.0 (a) vs 2024.1 (b)", set()),
        (
            with_facts(schema_versions=["3.1", "3.2"]),
            NOTE,
            "version of the export's schema: 3.20.3 (a) vs 3.1, 3.2 (b)",
            set(),
        ),
        (other(gpus=[make_gpu(0), make_gpu(1, "")]), NOTE, "the reports do not name every GPU of b", set()),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_a_planted_difference_is_the_only_finding(side: Side, severity: str, text: str, prevents: set[str]) -> None:
    [(found_severity, found_text, found_prevents)] = found(A, side)
    assert (found_severity, found_prevents) == (severity, prevents) and found_text.startswith(text)
    assert check_comparability([A, side]).prevented == prevents


def test_other_steps() -> None:
    steps = A.summary.steps
    assert steps is not None
    assert found(A, other(steps=replace(steps, count=20))) == []
    renamed = other(steps=replace(steps, name="token", count=20))
    assert found(A, renamed) == [(WARNING, "steps: step (a) vs token (b)", {"steps"})]


def test_other_graphs() -> None:
    nodes = Side("a", replace(A.summary, facts=make_facts(graphs=["by node"])))
    whole = with_facts(graphs=["as a whole"])
    expected = [
        (
            WARNING,
            "CUDA graphs traced: by node (a) vs as a whole (b)",
            {"activity", "kernels", "nccl", "collectives", "waits"},
        )
    ]
    assert found(nodes, whole) == expected
    assert found(nodes, with_facts()) == []  # a run without graphs


def test_graphs_in_both_ways() -> None:
    mixed = make_facts(graphs=["by node", "as a whole"])
    a = Side("a", replace(A.summary, facts=mixed))
    text = "are traced by node and as a whole: capture every rank with --cuda-graph-trace=node of nsys"
    assert found(a, other(facts=mixed)) == [(WARNING, f"CUDA graphs of {side} {text}", set()) for side in "ab"]


def test_graphs_as_a_whole_that_may_hide_nccl() -> None:
    text = "that were traced as a whole: efficiencies count them as communication where NCCL is"
    hidden = hide_in_graphs(other(), 0.5)
    assert found(A, hidden) == [(NOTE, f"NCCL may be in CUDA graphs of b {text}", set())]
    assert found(A, hide_in_graphs(other(), 0)) == []


def test_other_payload() -> None:
    sides = [Side("a", replace(A.summary, waits=NO_WAITS)), other(waits=replace(NO_WAITS, reports_without_payload=1))]
    assert found(*sides) == [(WARNING, "payload of every call of NCCL: yes (a) vs no (b)", {"collectives", "waits"})]


def test_parts_of_both_jobs() -> None:
    chosen = Side("a", replace(A.summary, chosen=["ranks"]))
    assert found(chosen, other(chosen=["ranks"])) == [
        (NOTE, "a, b are a part of the ranks or GPUs of a job", {"scaling"})
    ]


def test_the_same_captures() -> None:
    one, two, three = (with_facts(captures=captures) for captures in (["x", "y"], ["y", "x"], ["y", "z"]))
    assert found(one, two) == [
        (WARNING, "b, b are of the same reports: only what was chosen of them can differ", {"scaling"})
    ]
    [(_, text, _)] = found(one, three)
    assert text.startswith("b, b have 1 report in common")
    assert found(A, one) == []


def test_summaries_of_older_versions() -> None:
    """What they lack is not checked; equal numbers of the job still show the same reports."""
    older, later = other(facts=None), other(facts=None, start_utc_ns=5)
    assert [text for _, text, _ in found(A, later)] == [
        "an older version made the summary of b, so these are not checked: traced sources, programs, missing ranks, "
        "CUDA graphs, lost data and versions of nsys"
    ]
    [same, _] = check_comparability([older, other(facts=None)]).findings
    assert same.text.startswith("b, b are of the same reports")
    document = A.summary.to_dict()
    del document["facts"]
    assert JobSummary.from_dict(json.loads(json.dumps(document))).facts is None


def test_warnings_come_first_and_are_grouped() -> None:
    sides = [A, with_facts(nsys_versions=["1"], programs=["x"]), with_facts(programs=["x"])._replace(label="c")]
    sides[2] = sides[2]._replace(summary=replace(sides[2].summary, facts=replace(FACTS, programs=["x"], captures=[])))
    assert [(severity, text) for severity, text, _ in found(*sides)] == [
        (WARNING, "program: python3 (a) vs x (b, c)"),
        (NOTE, "version of nsys: 2025.3.2.0 (a, c) vs 1 (b)"),
    ]
    assert list_findings(check_comparability(sides), str.upper) == [
        ("TRUST", "PROGRAM: PYTHON3 (A) VS X (B, C)"),
        ("NOTE", "VERSION OF NSYS: 2025.3.2.0 (A, C) VS 1 (B)"),
    ]


def test_as_json() -> None:
    finding = Finding(WARNING, "text", frozenset(("ranks", "gpus")))
    document = {"findings": [{"severity": "warning", "text": "text", "prevents": ["gpus", "ranks"]}]}
    assert json.loads(json.dumps(Comparability([finding]).to_dict())) == document


@pytest.mark.parametrize("name", ["\x1b]0;x\x07", "a\nb", "\ud800", "x" * 5000, "(unnamed)\u2028"])
def test_hostile_names(name: str) -> None:
    facts = make_facts(programs=[name], nsys_versions=[name], schema_versions=[name])
    steps = A.summary.steps
    assert steps is not None
    changes = {"gpus": [make_gpu(0, name)] * 3, "efficiency": None, "chosen": [name]}
    side = other(**changes, facts=facts, steps=replace(steps, name=name))
    findings = check_comparability([A, side._replace(label=name)]).findings
    assert len(findings) == 7
    assert all(finding.text.isprintable() and len(finding.text) < 300 for finding in findings)


# ---- real reports ----------------------------------------------------------------------------------------------------

TABLES = {
    "cuda_api": ("CUPTI_ACTIVITY_KIND_RUNTIME",),
    "kernels": ("CUPTI_ACTIVITY_KIND_KERNEL",),
    "memory_operations": ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"),
    "cuda_memory": ("CUDA_GPU_MEMORY_USAGE_EVENTS",),
    "mpi": ("MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_OTHER_EVENTS", "MPI_START_WAIT_EVENTS"),
    "nvtx": ("NVTX_EVENTS",),
    "os_runtime": ("OSRT_API",),
    "scheduling": ("SCHED_EVENTS",),
    "cpu_samples": ("COMPOSITE_EVENTS",),
    "gpu_metrics": ("GPU_METRICS",),
}
"""Tables with the events of each source."""


def truth_of(paths: Sequence[Path]) -> dict[str, Any]:
    """Facts on reports by plain SQL."""
    reports = [Report(path) for path in paths]
    operations = "SELECT DISTINCT deviceId, globalPid / 0x1000000 % 0x1000000 AS pid FROM CUPTI_ACTIVITY_KIND_KERNEL"
    models = set()
    for report in reports:
        if not report.count("CUPTI_ACTIVITY_KIND_KERNEL") or not report.has("TARGET_INFO_GPU"):
            continue
        devices = """JOIN TARGET_INFO_CUDA_DEVICE AS device ON device.pid = used.pid AND device.cudaId = used.deviceId
            JOIN TARGET_INFO_GPU AS gpu ON gpu.id = device.gpuId"""
        if not report.has("TARGET_INFO_CUDA_DEVICE"):
            devices = "JOIN TARGET_INFO_GPU AS gpu ON gpu.id = used.deviceId"
        models |= {
            name for name in report.sql(f"SELECT gpu.name FROM ({operations}) AS used {devices}")["name"] if name
        }
    schemas, products = (
        {
            str(own.value(f"SELECT value FROM {find_exports(own)} WHERE name = 'EXPORT_{key}_VERSION'"))
            for own in reports
        }
        for key in ("SCHEMA", "PRODUCT")
    )
    return {
        "models": models,
        "sources": {
            name: count
            for name, tables in TABLES.items()
            if (count := sum(any(count_events(report, table) for table in tables) for report in reports))
        },
        "schema": sorted(schemas),
        "nsys": sorted(products),
    }


def find_exports(report: Report) -> str:
    return "META_DATA_EXPORT" if report.has("META_DATA_EXPORT") else "EXPORT_META_DATA"


def count_events(report: Report, table: str) -> object:
    if table != "NVTX_EVENTS" or not report.has(table):
        return report.count(table)
    return report.value("SELECT COUNT(*) FROM NVTX_EVENTS WHERE eventType IN (34, 59, 60, 65, 70, 71)")


def as_truth(summary: JobSummary) -> dict[str, Any]:
    facts = summary.facts
    assert facts is not None
    return {
        "models": {gpu.name for gpu in summary.gpus if gpu.name},
        "sources": {name: count for name, count in facts.sources.items() if name in TABLES},
        "schema": facts.schema_versions,
        "nsys": facts.nsys_versions,
    }


REAL = {
    "samples/ddp-2x2": "ddp-2x2.rank?.sqlite",
    "samples/mpi-4": "mpi-4.rank?.sqlite",
    "samples/single-graph": "single-graph.sqlite",
    "public/pipit_cloverleaf": "pipit_cloverleaf.sqlite",
    "public/h100_2gpu_1s": "h100_2gpu_1s.sqlite",
    "public/mapf_report1": "mapf_report1.sqlite",
    "cpu/2024.2.3-2node": "2024.2.3-2node_rank?.sqlite*",
}


def find_reports(name: str, samples: Path, shared_reports: Path, unpacked: Unpacked) -> list[Path]:
    folder = samples if name.startswith("samples/") else shared_reports / name.split("/")[0]
    paths = sorted(folder.glob(REAL[name]))
    return [unpacked(path) for path in paths or [folder / REAL[name]]]


@pytest.mark.slow
@pytest.mark.parametrize("name", sets(REAL))
def test_findings_are_those_of_plain_sql(name: str, samples: Path, shared_reports: Path, unpacked: Unpacked) -> None:
    """Against single-graph: facts on both sides, and a finding for each that differs."""
    paths = find_reports(name, samples, shared_reports, unpacked)
    summary, base = summarize_reports(paths), summarize_reports([samples / "single-graph.sqlite"])
    mine, theirs = truth_of(paths), truth_of([samples / "single-graph.sqlite"])
    assert as_truth(summary) == mine and as_truth(base) == theirs
    texts = [finding.text for finding in check_comparability([Side("base", base), Side("b", summary)]).findings]

    def has(*starts: str) -> bool:
        return any(text.startswith(starts) for text in texts)

    assert has("GPU model: ") == bool(mine["models"] and mine["models"] != theirs["models"])
    assert has("version of nsys: ") == (mine["nsys"] != theirs["nsys"])
    assert has("version of the export's schema: ") == (mine["schema"] != theirs["schema"])
    assert has("base, b are of the same reports") == (name == "samples/single-graph")
    titles = {source.name: source.title for source in SOURCES}
    for source in TABLES:
        one_has, other_has = source in mine["sources"], source in theirs["sources"]
        assert has(f"{titles[source]}: in ") == (one_has != other_has), source


@pytest.mark.all_sets
@pytest.mark.slow
def test_graphs_by_node_and_as_a_whole(shared_reports: Path, unpacked: Unpacked) -> None:
    """Rank 0 of tpgraph was traced by node, the others as a whole, as their tables show."""
    kinds = []
    for rank in range(2):
        path = unpacked(shared_reports / f"exercises/tpgraph-1x4.rank{rank}.sqlite")
        report = Report(path)
        nodes = report.value("SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId > 0")
        whole = report.count("CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
        facts = summarize_reports([path]).facts
        assert facts is not None
        kinds.append(facts.graphs)
        assert facts.graphs == ["by node"] * bool(nodes) + ["as a whole"] * bool(whole)
    assert kinds == [["by node"], ["as a whole"]]


@pytest.mark.slow
def test_facts_of_changed_reports(samples: Path, tmp_path: Path) -> None:
    """A copy is the same capture whatever it lacks; one that began a ns later is another one."""
    report = samples / "mpi-4.rank0.sqlite"
    later = changed(
        report, tmp_path / "later.sqlite", ["UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + 1"]
    )
    lost = "INSERT INTO DIAGNOSTIC_EVENT VALUES (1000000, 1, 1, 3, 'Buffers were dropped', NULL)"
    copy = changed(without(report, tmp_path / "copy.sqlite", "MPI%"), tmp_path / "lost.sqlite", [lost, lost])
    first, second, third = (_get_facts(path) for path in (report, later, copy))
    assert first.captures == third.captures != second.captures
    assert (first.lost_data_messages, third.lost_data_messages) == (0, 2)
    assert "mpi" in first.sources and "mpi" not in third.sources
    assert first.lacks_ranks
    assert first.programs == second.programs == ["python3"]


def _get_facts(path: Path) -> JobFacts:
    facts = summarize_reports([unpack(path)]).facts
    assert facts is not None
    return facts


@pytest.mark.slow
def test_command_lines_stay_inside(samples: Path, tmp_path: Path) -> None:
    """The name of an executable is in the names of tasks as well; its folder and arguments are not in facts."""
    path = changed(
        samples / "single-graph.sqlite",
        tmp_path / "secret.sqlite",
        ["UPDATE PROCESSES SET name = '/home/hunter2/bin/train'"],
    )
    summary = summarize_reports([path])
    assert summary.facts is not None and summary.facts.programs == ["train"]
    assert any("train" in task for gpu in summary.gpus for task in gpu.tasks)
    assert "hunter2" not in json.dumps(summary.to_dict())
