"""Whole translations against the reports: every event of the trace, its place and its time, by plain SQL."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsys2prv_ng.paraver.checker.trace import check_trace
from tests import report_truth as truth
from tests.conftest import REPORTS, SAMPLES, Unpacked
from tests.report_sets import sets
from tests.report_truth import Report
from tests.spans import MISSING
from tests.tiers import cases
from tests.trace_reader import compare_tables, read_trace
from tests.translated import (
    BYTES,
    CAPTURE,
    COPY,
    CUDA_API,
    GRAPH,
    KERNEL,
    LAUNCH,
    MEMORY,
    NCCL_KERNEL,
    Translated,
    Translations,
    changed,
    translated_set,
)

RANGE, MARK, CATEGORY, NUMBER, FIRST_LANE = 0, 50, 51, 52, 60
"""Offsets in the block of 100 event types of an NVTX domain."""


def _sets() -> dict[str, list[Path]]:
    """Reports that are translated together, by the name of their set."""
    sets = {
        "samples/ddp-2x2": sorted(SAMPLES.glob("ddp-2x2.*")),
        "samples/mpi-4": sorted(SAMPLES.glob("mpi-4.*")),
        "samples/single-graph": [SAMPLES / "single-graph.sqlite"],
    }
    for folder in ("gpu", "cpu", "public"):
        sets |= {f"{folder}/{path.stem}": [path] for path in sorted((REPORTS / folder).glob("*.sqlite"))}
    for together in (
        "gpu/ddp-2x2",
        "gpu/mpi-4",
        "cpu/2022.4.2-ompi",
        "cpu/2024.2.3-2node",
        "cpu/2024.2.3-ompi_rank",
        "cpu/2024.2.3-nccl_mimic",
        "bench/ddplong-2x2",
        "bench/torchrun-one-report",
        "exercises/tpgraph-1x4",
    ):
        sets |= {together: sorted(REPORTS.glob(f"{together}*"))}
    return {name: reports for name, reports in sets.items() if reports}


_REAL = [pytest.param(reports, id=name) for name, reports in _sets().items()]


@pytest.fixture(scope="module", params=sets(_REAL) + MISSING)
def translated(request: pytest.FixtureRequest, translations: Translations, unpacked: Unpacked) -> Translated:
    return translations([unpacked(path) for path in request.param])


def per_group(events: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Number and summed duration (ns) of the events of each group."""
    lasts = events.assign(duration=events["end"] - events["begin"])
    return lasts.groupby(keys)["duration"].agg(["size", "sum"]).astype(np.int64).reset_index()


@pytest.mark.slow
def test_the_checker_finds_nothing(translated: Translated) -> None:
    assert check_trace(translated.trace.path).problems == []


@pytest.mark.slow
def test_the_pcf_names_the_types_that_are_in_the_trace_and_no_others(translated: Translated) -> None:
    """Paraver takes what the .pcf names for present, and asks about presets that use what is not. NCCL's kernels are
    always named, for BasicAnalysis.
    """
    assert set(translated.trace.types) == {*translated.trace.events["type"], NCCL_KERNEL}


def test_objects_are_those_of_the_reports(translated: Translated) -> None:
    objects, trace = translated.objects, translated.trace
    if not objects.rows:
        hosts = list(dict.fromkeys(report.host for report in sorted(objects.reports, key=lambda r: (r.utc, r.host))))
        assert trace.names["TASK"] == trace.names["NODE"] == hosts
        return
    assert trace.names["TASK"] == objects.tasks
    assert trace.names["THREAD"] == objects.rows
    nodes = trace.names["NODE"]
    assert [nodes[node - 1] for node in trace.nodes] == objects.hosts
    assert sorted(nodes) == sorted(set(objects.hosts))


# ---- every event, its row and its time -------------------------------------------------------------------------------


def test_every_kernel_is_on_its_row_at_its_time(translated: Translated) -> None:
    expected = translated.operations[translated.operations["table"] == "KERNEL"]
    is_nccl = np.array([name.startswith("nccl") for name in expected["name"]], bool)
    for event_type, of_type in ((NCCL_KERNEL, expected.loc[is_nccl]), (KERNEL, expected.loc[~is_nccl])):
        columns = ["row", "begin", "end", "name"]
        assert compare_tables(translated.intervals(event_type), of_type, columns) == ""


def test_every_memory_operation_is_on_its_row_at_its_time(translated: Translated) -> None:
    found = translated.intervals(MEMORY)
    found["bytes"] = found["line"].map(translated.trace.get_attribute(BYTES)).astype(np.int64)
    expected = translated.operations[translated.operations["table"].isin(["MEMCPY", "MEMSET"])]
    assert compare_tables(found, expected, ["row", "begin", "end", "name", "bytes"]) == ""
    # Bytes last as long as the operation: presets divide them by its time.
    events = translated.trace.events
    zeroed = events.loc[(events["type"] == BYTES) & (events["value"] == 0), "line"]
    assert set(found["end_line"]) <= set(zeroed)


def test_every_graph_traced_as_a_whole_is_on_its_row_at_its_time(translated: Translated) -> None:
    expected = translated.operations[translated.operations["table"] == "GRAPH_TRACE"]
    assert compare_tables(translated.intervals(GRAPH), expected, ["row", "begin", "end", "name"]) == ""


def test_every_call_is_on_its_row_at_its_time(translated: Translated) -> None:
    columns = ["row", "begin", "end", "name"]
    assert compare_tables(translated.intervals(CUDA_API), translated.calls, columns) == ""


def test_every_nvtx_event_is_on_its_row_at_its_time(translated: Translated) -> None:
    columns = ["row", "begin", "end", "style", "domain", "name", "number", "category"]
    assert compare_tables(_nvtx_of_trace(translated), translated.nvtx, columns) == ""


@pytest.mark.slow
def test_name_and_number_give_the_text_back(translated: Translated) -> None:
    """Of `step 3` nothing is lost but the separator, and PyTorch's texts are told apart by their op_id."""
    keys = ["row", "begin", "end", "style", "domain"]
    found = _nvtx_of_trace(translated)
    unique = found[~found.duplicated(keys, keep=False)]
    assert len(unique) >= 0.9 * len(found)
    text_at = translated.nvtx.set_index(keys)["text"].to_dict()
    texts = [text_at[key] for key in unique[keys].itertuples(index=False, name=None)]
    for text, name, number in set(zip(texts, unique["name"], unique["number"].fillna(_NO_NUMBER), strict=True)):
        text = " ".join(text.split())
        rest = text.removeprefix(name)
        assert text.startswith(name)
        if number == _NO_NUMBER:
            assert rest == "" or rest.startswith((", sizes = [", ", input_op_ids = [")), text
        elif ", op_id = " in rest or ", seq = " in rest:
            key = "op_id" if ", op_id = " in rest else "seq"
            assert f", {key} = {number}," in f"{rest},", text
        else:
            assert rest[0] in " :=#" and int(rest.lstrip(" :=#")) == number, text


_NO_NUMBER = -(2**63)


def _nvtx_of_trace(translated: Translated) -> pd.DataFrame:
    """Ranges and marks: row, begin, end (UTC), style, domain, name, number, category."""
    trace = translated.trace
    parts = []
    for domain, base in _nvtx_bases(translated).items():
        label = f"NVTX {domain}" if domain else "NVTX"
        lanes = [number for number in trace.types if base + FIRST_LANE <= number < base + 100]
        for lane in lanes:
            assert trace.types[lane] == f"{label} start/end range, lane {lane - base - FIRST_LANE + 1}"
        if base in trace.types:
            assert trace.types[base] == f"{label} range"
        marks = trace.events[trace.events["type"] == base + MARK]
        marks = marks.assign(begin=marks["time"] + translated.start, end=marks["time"] + translated.start)
        marks["name"] = trace.get_labels(base + MARK, marks["value"])
        select_domain = [
            translated.intervals(base).assign(style=truth.PUSH_POP),
            translated.intervals(*lanes).assign(style=truth.START_END),
            marks.assign(style=truth.MARK),
        ]
        together = pd.concat([part for part in select_domain if len(part)], ignore_index=True)
        together["number"] = together["line"].map(trace.get_attribute(base + NUMBER)).astype("Int64")
        category = together["line"].map(trace.get_attribute(base + CATEGORY))
        labels = trace.values.get(base + CATEGORY, {})
        together["category"] = ["" if pd.isna(value) else labels[int(value)] for value in category]
        parts.append(together.assign(domain=domain))
    columns = ["row", "begin", "end", "style", "domain", "name", "number", "category"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _nvtx_bases(translated: Translated) -> dict[str, int]:
    """First event type of each domain that has events: fixed ones, then from 9700 in the order of the names."""
    fixed = {"": 9600, "NCCL": 9500, "neSmiK": 81000}
    domains = sorted(set(translated.nvtx["domain"]))
    others = [domain for domain in domains if domain not in fixed]
    return {domain: fixed[domain] if domain in fixed else 9700 + 100 * others.index(domain) for domain in domains}


# ---- lines, counts, time ---------------------------------------------------------------------------------------------


def test_lines_lead_from_every_recorded_call_to_what_it_launched(translated: Translated) -> None:
    lines = translated.trace.communications
    assert (lines["send_logical"] == lines["send_physical"]).all()
    assert (lines["receive_logical"] == lines["receive_physical"]).all()
    found = lines.assign(
        send=lines["send_logical"] + translated.start, receive=lines["receive_logical"] + translated.start
    )
    expected = truth.list_launch_lines(translated.objects)
    assert compare_tables(found, expected, list(expected.columns)) == ""
    assert set(lines["tag"]) <= {LAUNCH, COPY}


def test_every_event_is_written_or_accounted_for(translated: Translated) -> None:
    reports, trace = translated.objects.reports, translated.trace
    for account in translated.summary.sources:
        assert account.read == account.written + sum(account.dropped.values()), account
    rows = {
        "kernels": sum(report.count("CUPTI_ACTIVITY_KIND_KERNEL") for report in reports),
        "memory_operations": sum(
            report.count(f"CUPTI_ACTIVITY_KIND_{table}") for report in reports for table in ("MEMCPY", "MEMSET")
        ),
        "cuda_api": sum(report.count("CUPTI_ACTIVITY_KIND_RUNTIME") for report in reports),
        "nvtx": sum(
            int(report.value("SELECT COUNT(*) FROM NVTX_EVENTS WHERE eventType IN (34, 59, 60, 65, 70, 71)"))
            for report in reports
            if report.has("NVTX_EVENTS")
        ),
    }
    for source, number in rows.items():
        account = translated.account(source)
        assert (account.read, account.dropped, account.closed_at_end) == (number, {}, 0), source
    lines = translated.account("launch_lines")
    graphs = sum(report.count("CUPTI_ACTIVITY_KIND_GRAPH_TRACE") for report in reports)
    assert lines.read == rows["kernels"] + rows["memory_operations"] + graphs
    assert lines.written == len(trace.communications)
    summary, trace = translated.summary, read_trace(trace.path)
    assert summary.events == trace.events["line"].nunique()
    assert summary.states == len(trace.states)
    assert summary.communications == len(trace.communications)
    assert (summary.tasks, summary.rows, summary.nodes) == (len(trace.threads), sum(trace.threads), len(trace.cpus))


def test_time_starts_with_the_first_event_of_any_report(translated: Translated) -> None:
    """That every event is at its UTC from there is in the tests of every event."""
    reports, trace = translated.objects.reports, translated.trace
    times = pd.concat([trace.events["time"], trace.states["begin"], trace.states["end"]])
    assert (times.min(), times.max()) == (0, trace.duration)
    assert translated.summary.duration_ns == trace.duration
    firsts = [report.utc + report.first_event for report in reports if report.first_event is not None]
    if firsts:
        assert translated.start == min(firsts)
        lasts = [report.utc + report.last_event for report in reports if report.first_event is not None]
        assert trace.duration == max(lasts) - min(firsts)
    else:
        # Nothing of what was chosen: one interval on each node shows that there was a capture.
        assert translated.start == min(report.utc for report in reports)
        captures = translated.intervals(CAPTURE)
        expected = [
            (min(r.utc for r in of_host), max(r.utc + r.duration for r in of_host))
            for host in dict.fromkeys(report.host for report in reports)
            if (of_host := [r for r in reports if r.host == host])
        ]
        assert sorted(zip(captures["begin"], captures["end"], strict=True)) == sorted(expected)


def test_each_row_has_a_cpu_of_its_node(translated: Translated) -> None:
    trace = translated.trace
    assert len(trace.cpus) == len(trace.names["NODE"])
    expected, next_cpu = [], [1 + sum(trace.cpus[:node]) for node in range(len(trace.cpus))]
    for task in trace.task_of_row:
        node = trace.nodes[task - 1] - 1
        expected.append(next_cpu[node])
        next_cpu[node] += 1
    for records, row, cpu in (
        (trace.events, "row", "cpu"),
        (trace.states, "row", "cpu"),
        (trace.communications, "send_row", "send_cpu"),
        (trace.communications, "receive_row", "receive_cpu"),
    ):
        assert (records[cpu] == np.array(expected, np.int64)[records[row]]).all()


# ---- NVIDIA's own sums -----------------------------------------------------------------------------------------------


GOLD = {
    "ddplong-2x2.rank0": REPORTS / "bench/ddplong-2x2.rank0.sqlite.xz",
    "mpi-4.rank0": SAMPLES / "mpi-4.rank0.sqlite",
}


@pytest.fixture(scope="module", params=cases(GOLD, push=["mpi-4.rank0"]))
def gold(
    request: pytest.FixtureRequest, shared_reports: Path, unpacked: Unpacked, translations: Translations
) -> tuple[Translated, Path]:
    """The trace of one report, and the beginning of the names of what `nsys stats` says of it."""
    report = GOLD[request.param]
    return translations([unpacked(report)]), shared_reports / "gold" / request.param


def _gold_sums(prefix: Path, statistic: str, count: str, name: str) -> pd.DataFrame:
    """name, size and sum (ns) of a table of `nsys stats`; an empty file is one without rows."""
    path = prefix.with_name(f"{prefix.name}_{statistic}.csv")
    with path.open(newline="") as file:
        rows = [(row[name], int(row[count]), int(row["Total Time (ns)"])) for row in csv.DictReader(file)]
    return pd.DataFrame(rows, columns=["name", "size", "sum"])


def _sums(events: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    return per_group(events.assign(name=names), ["name"])


SUMS = ["name", "size", "sum"]


@pytest.mark.slow
def test_calls_sum_up_as_nvidia_says(gold: tuple[Translated, Path]) -> None:
    translated, prefix = gold
    found = per_group(translated.intervals(CUDA_API), ["name"])
    expected = _gold_sums(prefix, "cuda_api_sum", "Num Calls", "Name")
    expected["name"] = expected["name"].str.replace(r"_v[0-9]+$", "", regex=True)
    assert len(expected) > 5
    assert compare_tables(found, expected.groupby("name", as_index=False).sum(), SUMS) == ""


def test_kernels_sum_up_as_nvidia_says(gold: tuple[Translated, Path]) -> None:
    """NVIDIA sums by demangled name, the trace by short name."""
    translated, prefix = gold
    short_name = dict(
        translated.objects.reports[0].connection.execute(
            """SELECT DISTINCT d.value, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k
            JOIN StringIds d ON d.id = k.demangledName JOIN StringIds s ON s.id = k.shortName"""
        )
    )
    expected = _gold_sums(prefix, "cuda_gpu_kern_sum", "Instances", "Name")
    assert len(expected) > 1
    expected["name"] = expected["name"].map(short_name)
    found = per_group(translated.intervals(KERNEL, NCCL_KERNEL), ["name"])
    assert compare_tables(found, expected.groupby("name", as_index=False).sum(), SUMS) == ""


def test_memory_operations_sum_up_as_nvidia_says(gold: tuple[Translated, Path]) -> None:
    translated, prefix = gold
    nvidia = {
        "Memcpy device to device": "[CUDA memcpy Device-to-Device]",
        "Memcpy host to device": "[CUDA memcpy Host-to-Device]",
        "Memcpy device to host": "[CUDA memcpy Device-to-Host]",
        "Memset": "[CUDA memset]",
    }
    found = translated.intervals(MEMORY)
    found = _sums(found, [nvidia[name] for name in found["name"]])
    expected = _gold_sums(prefix, "cuda_gpu_mem_time_sum", "Count", "Operation")
    assert compare_tables(found, expected, SUMS) == ""


def test_nvtx_ranges_sum_up_as_nvidia_says(gold: tuple[Translated, Path]) -> None:
    """NVIDIA calls a range DOMAIN:TEXT; the text is the name in the trace, and the number where there is one."""
    translated, prefix = gold
    found = _nvtx_of_trace(translated)
    found = found[found["style"] == truth.PUSH_POP]
    texts = [
        f"{domain}:{name}" if pd.isna(number) else f"{domain}:{name} {number}"
        for domain, name, number in zip(found["domain"], found["name"], found["number"], strict=True)
    ]
    expected = _gold_sums(prefix, "nvtx_pushpop_sum", "Instances", "Range")
    assert len(expected) > 5
    assert compare_tables(_sums(found, texts), expected, SUMS) == ""


# ---- what no real report has -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_has_no_end_lasts_until_the_trace_ends(tmp_path: Path, samples: Path) -> None:
    last = "(SELECT MAX(start) FROM NVTX_EVENTS WHERE text LIKE 'iteration %')"
    statement = f'UPDATE NVTX_EVENTS SET "end" = NULL WHERE start = {last}'
    report = changed(samples / "mpi-4.rank0.sqlite", tmp_path / "report.sqlite", [statement])
    translated = translated_set([report], tmp_path)
    assert translated.account("nvtx").closed_at_end == 1
    assert translated.account("nvtx").written == translated.account("nvtx").read
    begin = Report(report).value(f"SELECT {last}")
    ranges = translated.intervals(9600)
    of_range = ranges[ranges["begin"] == begin + translated.objects.reports[0].utc]
    assert list(of_range["end"] - translated.start) == [translated.trace.duration]
    assert check_trace(translated.trace.path).problems == []
