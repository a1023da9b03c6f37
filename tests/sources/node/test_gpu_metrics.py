"""GPU metrics against plain SQL, and what exports can hold that real ones rarely do."""

from __future__ import annotations

import contextlib
import json
import random
import re
import sqlite3
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.families import FAMILIES, make_gpu_metric
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.node import gpu_metrics
from nsys2prv_ng.sources.shared.samples import join_blocks, make_block
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from tests.conftest import SAMPLES
from tests.report_sets import find_set, sets
from tests.sources.small_reports import UTC, export, get_account, read_utc, translate_reports
from tests.trace_reader import Trace, compare_tables

GPU_TYPE = 281479271677952
"""typeId of GPU 0's metrics in the reports."""
FIRST = 9400

SETS = (
    *("samples/ddp-2x2", "samples/single-graph", "gpu/ddp-2x2", "gpu/single-node"),
    *("bench/ddplong-2x2", "bench/torchrun-one-report"),
)


def _sql(report: Path, query: str) -> pd.DataFrame:
    with contextlib.closing(sqlite3.connect(f"{report.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        return pd.read_sql_query(query, database)


def _read_integers(report: Path, table: str, *columns: str) -> pd.DataFrame:
    """Return integers of all rows of a table, which SQLite joins to one text: faster than an object for each value."""
    row = " || ' ' || ".join(columns)
    texts = _sql(report, f"SELECT COUNT(*) AS rows, GROUP_CONCAT({row}, ' ') AS text FROM {table}")
    values = np.fromstring(texts["text"][0], np.int64, sep=" ").reshape(texts["rows"][0], len(columns))
    return pd.DataFrame(dict(zip(columns, values.T, strict=True)))


def _has_metrics(report: Path) -> bool:
    return bool(_sql(report, "SELECT COUNT(*) AS n FROM sqlite_master WHERE name = 'GPU_METRICS'")["n"][0])


def _values(reports: Sequence[Path]) -> pd.DataFrame:
    """All values of the reports: GPU, name, time (UTC), value."""
    parts = []
    for report in filter(_has_metrics, reports):
        names = _sql(report, "SELECT typeId, metricId, metricName AS name FROM TARGET_INFO_GPU_METRICS")
        names["name"] = names["name"].astype("category")
        values = _read_integers(report, "GPU_METRICS", "typeId", "metricId", "timestamp", "value")
        part = values.merge(names, on=["typeId", "metricId"])
        assert len(part) == len(values)
        parts.append(part.assign(gpu=part["typeId"] % 256, time=part["timestamp"] + read_utc(report)))
    return pd.concat(parts, ignore_index=True)[["gpu", "name", "time", "value"]]


def _values_of(trace: Trace, start: int) -> pd.DataFrame:
    """All values in the trace: GPU, name, time (UTC), value, line."""
    events = trace.events[(trace.events["type"] >= FIRST) & (trace.events["type"] < 9500)]
    rows = trace.names["THREAD"]
    gpu_of_row = {row: int(name.removeprefix("Metrics GPU")) for row, name in enumerate(rows) if "Metrics" in name}
    return pd.DataFrame(
        {
            "gpu": events["row"].map(gpu_of_row),
            "name": events["type"].map(pd.Series(trace.types, dtype="category")),
            "time": events["time"] + start,
            "value": events["value"],
            "line": events["line"],
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", sets(SETS))
def test_every_value_of_every_sample_of_every_gpu(name: str, tmp_path: Path) -> None:
    reports = find_set(name)
    trace, summary = translate_reports(reports, tmp_path / "x.prv", "gpu_metrics")
    expected, found = _values(reports), _values_of(trace, summary.start_utc_ns)
    assert len(expected) == len(found)
    names = sorted(expected["name"].unique())
    assert names == sorted(found["name"].unique())
    for part in (expected, found):  # numbers sort and compare faster than texts
        part["name"] = part["name"].astype(pd.CategoricalDtype(names)).cat.codes
    first, last = expected["time"].min(), expected["time"].max()
    assert (first, last) == (found["time"].min(), found["time"].max())
    ordered = []
    for part in (expected, found):  # one number for GPU, name and time sorts faster than three
        series = part["gpu"].to_numpy(np.int64) * len(names) + part["name"].to_numpy(np.int64)
        at = series * int(last - first + 1) + (part["time"] - first).to_numpy(np.int64)
        order = np.argsort(at, kind="stable")
        ordered.append((at[order], part["value"].to_numpy(np.int64)[order]))
    assert all(map(np.array_equal, *ordered))

    samples = len(np.unique(expected["gpu"].to_numpy() * int(last - first + 1) + (expected["time"] - first).to_numpy()))
    assert found["line"].nunique() == samples
    told = get_account(summary, "gpu_metrics")
    assert (told.read, told.written, told.dropped) == (samples, samples, {})
    if name == "bench/ddplong-2x2":
        assert samples == 225_003
    # Clocks are in Hz under a name that says MHz.
    pcf = (tmp_path / "x.pcf").read_text()
    scaled = re.findall(r"^0 \d+ (.*)\nPRECISION 6$", pcf, re.MULTILINE)
    assert sorted(scaled) == sorted(n for n in names if n.endswith("[MHz]")) != []


@pytest.mark.slow
def test_rows_are_those_of_the_ranks_that_used_the_gpu(tmp_path: Path) -> None:
    reports = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))
    trace, _ = translate_reports(reports, tmp_path / "x.prv", "gpu_metrics,kernels")
    owner = {
        name: trace.names["TASK"][trace.task_of_row[row] - 1]
        for row, name in enumerate(trace.names["THREAD"])
        if name.startswith("Metrics")
    }
    # The metrics of both GPUs of a node are in the report of its first rank.
    assert owner == {f"Metrics GPU{rank}": f"rank {rank}" for rank in range(4)}


@pytest.mark.slow
def test_only_changes(tmp_path: Path) -> None:
    """What is written is what differs from the value before of its metric and GPU."""
    reports = [SAMPLES / "single-graph.sqlite"]
    trace, summary = translate_reports(reports, tmp_path / "x.prv", "gpu_metrics", SourceOptions(metrics_changes=True))
    values = _values(reports).sort_values("time")
    values = values[values["value"] != values.groupby(["gpu", "name"])["value"].shift()]
    found = _values_of(trace, summary.start_utc_ns)
    assert compare_tables(found, values, ["gpu", "name", "time", "value"]) == ""
    assert 0 < len(found) < len(_values(reports)) / 2
    told = get_account(summary, "gpu_metrics")
    assert told.written == values.groupby(["gpu", "time"]).ngroups
    assert told.dropped.get("unchanged", 0) == told.read - told.written


def test_only_limits(tmp_path: Path) -> None:
    """An answer needs no sample but the first and the last of each GPU, which limit what was captured."""
    report = SAMPLES / "ddp-2x2.rank0.sqlite"
    trace, summary = translate_reports([report], tmp_path / "x.prv", "gpu_metrics", SourceOptions(metrics_limits=True))
    truth = _values([report])
    found = _values_of(trace, summary.start_utc_ns)
    limits = truth.groupby("gpu")["time"].agg(["min", "max"]).to_numpy().ravel().tolist()
    assert len(limits) == 4 and sorted(found["time"].unique()) == sorted(set(limits))
    account = get_account(summary, "gpu_metrics")
    assert account.read == truth.groupby(["gpu", "time"]).ngroups
    assert (account.written, account.dropped) == (4, {"sample between the first and the last": account.read - 4})


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        (("SM*", "DRAM*"), r"SM|DRAM"),
        (("GPC Clock Frequency [MHz]",), r"GPC Clock"),
        (("*[MHz]", "tensor active*"), r".*\[MHz\]|Tensor Active"),
        (("?Rs?A*", "GR Active*"), r"GR Active"),
    ],
)
def test_choice_of_metrics(patterns: tuple[str, ...], chosen: str, tmp_path: Path) -> None:
    report = SAMPLES / "single-graph.sqlite"
    names = {name for name in _values([report])["name"] if re.match(chosen, name)}
    if patterns[0].startswith("?"):
        with pytest.raises(UsageError, match=re.escape(patterns[0])):
            translate_reports([report], tmp_path / "x.prv", "gpu_metrics", SourceOptions(metrics=patterns))
        return
    trace, summary = translate_reports([report], tmp_path / "x.prv", "gpu_metrics", SourceOptions(metrics=patterns))
    found = _values_of(trace, summary.start_utc_ns)
    expected = _values([report])
    expected = expected[expected["name"].isin(names)]
    assert names and set(found["name"]) == names
    assert compare_tables(found, expected, ["gpu", "name", "time", "value"]) == ""


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("SM activ", "SMs Active*"),  # nearly a name
        ("tensor active", "*tensor active*"),  # without its unit
        ("sm_issue*", "SM Issue*"),
    ],
)
def test_a_guess_fits_metrics(typed: str, meant: str, tmp_path: Path) -> None:
    report = SAMPLES / "single-graph.sqlite"
    options = SourceOptions(metrics=(typed,))
    with pytest.raises(UsageError, match=re.escape(f"no metric has such a name; did you mean '{meant}'?")):
        translate_reports([report], tmp_path / "x.prv", "gpu_metrics", options)
    assert any(fnmatch(name.lower(), meant.lower()) for name in _values([report])["name"])


def test_a_pattern_that_fits_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"metrics='Nothing\*':.*known are .*SMs Active"):
        translate_reports(
            [SAMPLES / "single-graph.sqlite"], tmp_path / "x.prv", "gpu_metrics", SourceOptions(metrics=("Nothing*",))
        )
    with pytest.raises(UsageError, match="no GPU metrics"):
        translate_reports(
            [SAMPLES / "mpi-4.rank0.sqlite"], tmp_path / "x.prv", "gpu_metrics", SourceOptions(metrics=("SM*",))
        )
    assert not list(tmp_path.iterdir())


# ---- what real exports rarely hold -----------------------------------------------------------------------------------

NAMES = ("typeId", "sourceId", "typeName", "metricId", "metricName")


def _named(*metrics: tuple[int, int, str]) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    return NAMES, [(GPU_TYPE + gpu, 0, "", metric, name) for gpu, metric, name in metrics]


def _lines(trace: Trace) -> list[tuple[str, int, dict[str, int]]]:
    """Row, time and values of each line."""
    found = []
    for _, line in trace.events.groupby("line"):
        row, time = trace.names["THREAD"][line["row"].iloc[0]], int(line["time"].iloc[0])
        labels = [trace.types.get(t, str(t)) for t in line["type"]]
        found.append((row, time, dict(zip(labels, line["value"].tolist(), strict=True))))
    return found


def test_missing_values_times_and_names(tmp_path: Path) -> None:
    rows = [
        (100, 100, GPU_TYPE, 0, 5),
        (100, 100, GPU_TYPE, 1, None),
        (150, None, GPU_TYPE, 0, -3),
        (150, None, GPU_TYPE, 7, 8),
        (200, 200, GPU_TYPE, 1, None),
        (None, None, GPU_TYPE, 0, 1),
        (300, 2**63 - 1, GPU_TYPE, 0, 1),
        (300, 300, None, 0, 1),
        (400, 400, GPU_TYPE, None, 1),
        (500, 500, GPU_TYPE, 1, "text"),
        (600, 600, GPU_TYPE, 0, 1 << 40),
    ]
    columns = ("rawTimestamp", "timestamp", "typeId", "metricId", "value")
    tables = {"GPU_METRICS": (columns, rows), "TARGET_INFO_GPU_METRICS": _named((0, 0, "A [%]"), (0, 1, "B"))}
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", "gpu_metrics")
    assert _lines(trace) == [
        ("Metrics GPU0", 0, {"A [%]": 5}),
        ("Metrics GPU0", 50, {"A [%]": -3, "GPU metric 7": 8}),
        ("Metrics GPU0", 500, {"A [%]": 1 << 40}),
    ]
    told = get_account(summary, "gpu_metrics")
    assert (told.read, told.dropped) == (9, {"no time": 2, "no GPU": 1, "no value": 3})
    assert summary.reports[0].warnings == ["4 values of GPU metrics are NULL and dropped"]


def test_an_export_with_raw_timestamps_only(tmp_path: Path) -> None:
    tables = {
        "GPU_METRICS": (("rawTimestamp", "typeId", "metricId", "value"), [(7, GPU_TYPE, 0, 1), (9, GPU_TYPE, 0, 2)]),
        "TARGET_INFO_GPU_METRICS": _named((0, 0, "A")),
    }
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", "gpu_metrics")
    assert summary.start_utc_ns == UTC + 7
    assert _lines(trace) == [("Metrics GPU0", 0, {"A": 1}), ("Metrics GPU0", 2, {"A": 2})]


@pytest.mark.slow
def test_values_of_a_sample_that_are_apart(tmp_path: Path) -> None:
    """Whatever the order of the table, a sample is one line, and what changed is what changed in time."""
    rng = random.Random(5)
    rows = [
        (time, GPU_TYPE + gpu, m, (time // 30 + m) % 3) for time in range(0, 200, 10) for gpu in (0, 3) for m in (0, 1)
    ]
    in_order = [(time, type_id - GPU_TYPE, m, value) for time, type_id, m, value in rows]
    rng.shuffle(rows)
    tables = {
        "GPU_METRICS": (("timestamp", "typeId", "metricId", "value"), rows),
        "TARGET_INFO_GPU_METRICS": _named((0, 0, "A"), (0, 1, "B"), (3, 0, "A"), (3, 1, "B")),
    }
    report = export(tmp_path / "a.sqlite", [], tables)
    trace, _ = translate_reports([report], tmp_path / "x.prv", "gpu_metrics")
    expected: dict[tuple[str, int], dict[str, int]] = {}
    for time, gpu, m, value in in_order:
        expected.setdefault((f"Metrics GPU{gpu}", time), {})["AB"[m]] = value
    assert {(row, time): values for row, time, values in _lines(trace)} == expected
    assert len(_lines(trace)) == len(expected) == 40

    trace, summary = translate_reports([report], tmp_path / "y.prv", "gpu_metrics", SourceOptions(metrics_changes=True))
    last: dict[tuple[int, int], int] = {}
    changes: dict[tuple[str, int], dict[str, int]] = {}
    for time, gpu, m, value in in_order:
        if last.get((gpu, m)) != value:
            changes.setdefault((f"Metrics GPU{gpu}", time), {})["AB"[m]] = value
            last[gpu, m] = value
    assert {(row, time): values for row, time, values in _lines(trace)} == changes
    assert get_account(summary, "gpu_metrics").dropped == {"unchanged": 40 - len(changes)}


FEW = st.integers(0, 2)
INT64 = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.integers(0, 100), *(st.integers(-(2**n) - 1, 2**n) for n in (7, 15, 31))
)


@given(
    st.one_of(
        st.lists(st.tuples(FEW, FEW, FEW), max_size=20),
        st.tuples(st.integers(1, 4), FEW, st.lists(FEW, min_size=1, max_size=3)).map(
            lambda drawn: [(time, drawn[1], metric) for time in range(drawn[0]) for metric in drawn[2]]
        ),
    ),
    st.lists(st.integers(0, 20), max_size=4),
)
def test_samples_do_not_depend_on_the_blocks_that_they_are_read_in(
    rows: list[tuple[int, int, int]], cuts: list[int]
) -> None:
    """Rows are time, GPU and metric in any order, or samples of one GPU with the same metrics."""
    limits = sorted({0, *(cut for cut in cuts if cut < len(rows)), len(rows)})
    blocks = []
    for low, high in pairwise(limits):
        time, gpu, metric = np.array(rows[low:high], np.int64).T
        type_id = GPU_TYPE + gpu
        blocks.append(make_block(time, [type_id], [type_id, metric], np.arange(low, high)))
    index = {(GPU_TYPE + gpu, metric): 10 * gpu + metric for gpu in range(3) for metric in range(3)}
    samples = join_blocks(blocks, gpu_metrics._find_gpus(blocks), index)
    found = [
        (gpu, time, samples.metric[low:high].tolist(), samples.value[low:high].tolist())
        for gpu, time, (low, high) in zip(
            samples.device.tolist(), samples.time.tolist(), pairwise(samples.first.tolist()), strict=True
        )
    ]

    expected: dict[tuple[int, int], list[int]] = {}
    for i, (time, gpu, _) in enumerate(rows):
        expected.setdefault((gpu, time), []).append(i)
    if any(values != list(range(values[0], values[-1] + 1)) for values in expected.values()):
        expected = dict(sorted(expected.items()))
    assert found == [
        (gpu, time, [10 * gpu + rows[i][2] for i in values], values) for (gpu, time), values in expected.items()
    ]


@given(st.lists(st.tuples(FEW, FEW, FEW, st.sampled_from([NULL, 1, 2])), max_size=20), st.sets(st.integers(1, 19)))
def test_blocks_of_limits_keep_all_samples_and_all_values_of_limits(
    rows: list[tuple[int, int, int, int]], cuts: set[int]
) -> None:
    """Rows are time, GPU, metric and value. A block with NULL keeps everything: what is dropped is counted."""
    limits = sorted({0, *(cut for cut in cuts if cut < len(rows)), len(rows)})
    found = []
    for only_limits in (False, True):
        blocks = []
        for low, high in pairwise(limits):
            time, gpu, metric, value = np.array(rows[low:high], np.int64).T
            blocks.append(make_block(time, [gpu], [metric], value, only_limits=only_limits))
        samples = join_blocks(blocks, {(gpu,): gpu for gpu in range(3)}, {(metric,): metric for metric in range(3)})
        keys = zip(samples.device.tolist(), samples.time.tolist(), strict=True)
        values = zip(samples.metric.tolist(), samples.value.tolist(), strict=True)
        values_of = [list(islice(values, int(count))) for count in np.diff(samples.first)]
        found.append(list(zip(keys, values_of, strict=True)))
    whole, kept = found
    assert [key for key, _ in kept] == [key for key, _ in whole]
    for gpu in range(3):
        times = [time for (device, time), _ in whole if device == gpu]
        ends = {(gpu, time) for time in (min(times, default=0), max(times, default=0))}
        assert [item for item in kept if item[0] in ends] == [item for item in whole if item[0] in ends]
    for (_, mine), (_, every) in zip(kept, whole, strict=True):
        assert [value for _, value in mine].count(NULL) == [value for _, value in every].count(NULL)


def test_a_block_of_limits_is_small() -> None:
    time = np.repeat(np.arange(100), 5)
    metric = np.tile(np.arange(5), 100)
    block = make_block(time, [time * 0], [metric], metric, only_limits=True)
    assert block.value.size == 98 + 2 * 5


@given(st.lists(st.lists(INT64, min_size=1, max_size=6), max_size=5), st.integers(1, 300))
def test_blocks_keep_values_of_any_size(blocks: list[list[int]], metrics: int) -> None:
    """A block has values and metrics in as few bytes as they need."""
    made, every = [], []
    for number, values in enumerate(blocks):
        metric = np.arange(len(values) * metrics) % metrics
        every += values * metrics
        time = np.full(metric.size, number)
        made.append(make_block(time, [time * 0], [metric], np.array(values * metrics, np.int64)))
    samples = join_blocks(made, {(0,): 0}, {(metric,): metric for metric in range(metrics)})
    assert samples.value.tolist() == every
    assert samples.value.dtype == np.int64
    assert samples.metric.tolist() == [metric % metrics for b in blocks for metric in range(len(b) * metrics)]


@pytest.mark.slow
def test_kinds_of_gpu_that_number_their_metrics_differently(tmp_path: Path) -> None:
    rows = [(10, GPU_TYPE, 0, 1), (10, GPU_TYPE, 1, 2), (10, GPU_TYPE + 1, 0, 3), (10, GPU_TYPE + 1, 1, 4)]
    columns = ("timestamp", "typeId", "metricId", "value")
    one = {"GPU_METRICS": (columns, rows[:2]), "TARGET_INFO_GPU_METRICS": _named((0, 0, "A"), (0, 1, "B"))}
    two = {"GPU_METRICS": (columns, rows[2:]), "TARGET_INFO_GPU_METRICS": _named((1, 0, "B"), (1, 1, "C"))}
    reports = [export(tmp_path / "1.sqlite", [], one), export(tmp_path / "2.sqlite", [], two)]
    traces = [
        translate_reports(order, tmp_path / f"x{i}.prv", "gpu_metrics")[0]
        for i, order in enumerate((reports, reports[::-1]))
    ]
    for trace in traces:
        assert _lines(trace) == [("Metrics GPU0", 0, {"A": 1, "B": 2}), ("Metrics GPU1", 0, {"B": 3, "C": 4})]
        shown = set(trace.events["type"])
        assert sorted(trace.types[number] for number in shown) == ["A", "B", "C"]
        assert all(9_000_000 <= number < 9_100_000 for number in shown)
    assert traces[0].types == traces[1].types


def test_metrics_only_as_json_are_counted(tmp_path: Path) -> None:
    data = json.dumps({"SMs Active": "52"})
    tables = {
        "GENERIC_EVENTS": (("rawTimestamp", "typeId", "data"), [(1, 5, data), (2, 5, data), (3, 6, "{}")]),
        "GENERIC_EVENT_TYPES": (("typeId", "sourceId"), [(5, 50), (6, 60)]),
        "GENERIC_EVENT_SOURCES": (("sourceId", "data"), [(50, '{"Name":"GpuMetrics"}'), (60, '{"Name":"Other"}')]),
    }
    _, summary = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", "gpu_metrics")
    told = get_account(summary, "gpu_metrics")
    assert (told.read, told.written, list(told.dropped.values())) == (2, 0, [2])
    assert "export the report with nsys" in next(iter(told.dropped))


# ---- numbers ---------------------------------------------------------------------------------------------------------


def _numbers(metrics: Sequence[tuple[str, int]], known: Mapping[str, int] | None = None) -> dict[str, int]:
    types: list[EventType] = [make_gpu_metric(name, metric_id) for name, metric_id in metrics]
    return {event_type.member: number for event_type, number in FAMILIES["gpu_metrics"](types, known or {}).items()}


def test_numbers_of_metrics() -> None:
    assert _numbers([("A", 0), ("B", 1), ("C", 99)]) == {"A": 9400, "B": 9401, "C": 9499}
    # B has 1 on one kind of GPU and 0, which is A's, on the other: it keeps 1.
    assert _numbers([("A", 0), ("B", 0), ("B", 1)])["B"] == 9401
    beyond = _numbers([("A", 100), ("B", 5), ("C", 5), ("D", 0)])
    assert beyond["D"] == 9400
    assert all(9_000_000 <= beyond[name] < 9_100_000 for name in "ABC")
    # Numbers of another trace are kept, and no other metric has them.
    assert _numbers([("A", 0), ("B", 1)], {"A": 9401, "C": 9400}) == {"A": 9401, "B": _numbers([("B", 200)])["B"]}
    # A name's own number does not depend on what else there is.
    assert beyond["A"] == _numbers([("A", 200)])["A"]


@given(st.lists(st.tuples(st.sampled_from("ABCDEFGH"), st.integers(0, 120)), min_size=1), st.randoms())
def test_numbers_are_distinct_and_do_not_depend_on_order(
    metrics: list[tuple[str, int]], shuffle: random.Random
) -> None:
    numbers = _numbers(metrics)
    assert len(set(numbers.values())) == len({name for name, _ in metrics})
    assert all(9400 <= n < 9500 or 9_000_000 <= n < 9_100_000 for n in numbers.values())
    shuffled = list(metrics)
    shuffle.shuffle(shuffled)
    assert _numbers(shuffled) == numbers


def test_labels_units_and_precision() -> None:
    def parts(name: str) -> tuple[str, str, int]:
        event_type = make_gpu_metric(name, 0)
        return event_type.label, event_type.unit, event_type.precision

    assert parts("GPC Clock Frequency [MHz]") == ("GPC Clock Frequency", "MHz", 6)
    assert parts("SMs Active [Throughput %]") == ("SMs Active", "Throughput %", 0)
    assert parts("SMs Active") == ("SMs Active", "", 0)
    assert parts("[MHz]") == ("[MHz]", "", 0)
    assert parts("Odd [x] name") == ("Odd [x] name", "", 0)
