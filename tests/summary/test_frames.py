"""Tables of a summary as DataFrames and CSV files, against its JSON and plain SQL."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import nsys2prv_ng
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.summary.job import JobSummary
from tests.cli.program_runs import run
from tests.report_sets import find_set
from tests.report_truth import Report
from tests.summary.made import IN_STEPS, summarize_reports

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ddp(samples: Path) -> list[Path]:
    return sorted(samples.glob("ddp-2x2.rank*.sqlite"))


@pytest.fixture(scope="module")
def found(ddp: list[Path]) -> JobSummary:
    return summarize_reports(ddp, IN_STEPS)


def test_kernels_are_those_of_the_reports(ddp: list[Path]) -> None:
    """Of all time, by SQL."""
    counts: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for report in map(Report, ddp):
        rows = report.sql(
            """SELECT value AS name, count(*) AS count, sum("end" - start) AS ns FROM CUPTI_ACTIVITY_KIND_KERNEL
            JOIN StringIds ON id = shortName GROUP BY 1"""
        )
        counts.update(dict(zip(rows["name"], rows["count"], strict=True)))
        times.update(dict(zip(rows["name"], rows["ns"], strict=True)))
    frame = summarize_reports(ddp).to_frame("kernels")
    by_name = frame.groupby("kernel")[["count", "time_ns"]].sum()
    assert by_name["count"].to_dict() == counts and by_name["time_ns"].to_dict() == times


def test_values_are_those_of_the_json(found: JobSummary) -> None:
    numbers = found.to_dict()
    steps, tree = found.to_frame("steps"), found.to_frame("range_tree")
    assert steps["step"].tolist() == [step["number"] for step in numbers["efficiency"]["steps"]]
    assert steps["time_ns"].tolist() == [step["length_ns"] for step in numbers["efficiency"]["steps"]]
    assert steps["compute_ns"].tolist() == [step["losses"]["compute_ns"] for step in numbers["efficiency"]["steps"]]
    assert tree["gpu_time_ns"].tolist() == [node["gpu_ns"] for node in numbers["range_tree"]]
    assert tree["depth"].tolist() == [node["depth"] for node in numbers["range_tree"]] and tree["depth"].max() > 0
    waits = found.to_frame("waits").set_index("name")
    for rank in numbers["waits"]["ranks"]:
        row = waits.loc[f"rank {rank['rank']}"]
        assert [int(row[key]) for key in ("nccl_time_ns", "wait_time_ns", "wait_caused_ns")] == [
            rank[key] for key in ("nccl_ns", "wait_ns", "caused_wait_ns")
        ]
    saved = [(each["change"], each["saving_ns"]) for each in numbers["what_if"]["scenarios"] if each["measurable"]]
    scenarios = found.to_frame("scenarios")
    assert list(zip(scenarios["change"], scenarios["saving_ns"], strict=True)) == saved != []


def test_ranks_and_gpus_are_numbers(found: JobSummary) -> None:
    """As in the JSON; the name of a task without a rank stays."""
    assert found.waits is not None and found.memory is not None
    gpus = [(gpu.node, gpu.gpu, gpu.ranks[0]) for gpu in found.gpus]
    for name in ("gpus", "memory"):
        frame = found.to_frame(name)
        assert list(zip(frame["node"], frame["gpu"], frame["rank"], strict=True)) == gpus
    assert found.to_frame("gaps")["gpu"].tolist() == [gpu for _, gpu, _ in gpus]
    assert found.to_frame("waits")["rank"].tolist() == [rank.rank for rank in found.waits.ranks]
    assert found.to_frame("late_reasons")["rank"].isin([0, 1, 2, 3]).all()
    ranks = [replace(rank, rank=None if rank.rank == 2 else rank.rank) for rank in found.waits.ranks]
    frame = replace(found, waits=replace(found.waits, ranks=ranks)).to_frame("waits")
    assert frame["rank"].dtype == "Int64" and frame["rank"].isna().tolist() == [False, False, True, False]
    assert frame["name"][2] == found.waits.ranks[2].task


def test_efficiencies_have_a_row_for_each_level(found: JobSummary) -> None:
    assert found.efficiency is not None
    tree = found.efficiency.nccl_as_communication.device
    assert tree is not None
    frame = found.to_frame("efficiency")
    rates = frame.filter(like="communication_").iloc[:, 0]
    assert frame["depth"].tolist()[:3] == [0, 1, 1]
    assert rates.tolist()[:3] == [tree.parallel, tree.load_balance, tree.communication]


def test_every_table_is_a_csv_file(ddp: list[Path], found: JobSummary, tmp_path: Path) -> None:
    done = run("summary", *ddp, "-q", "--csv", tmp_path / "deep/tables")
    assert done.returncode == 0, done.stderr
    files = {file.name: file for file in (tmp_path / "deep/tables").iterdir()}
    assert set(files) == {f"{name}.csv" for name in found.tables}
    read = pd.read_csv(files["kernels.csv"], encoding="utf-8")
    frame = found.to_frame("kernels")
    assert read.columns.tolist() == frame.columns.tolist()
    assert read["time_ns"].tolist() == frame["time_ns"].tolist() and read["kernel"].tolist() == frame["kernel"].tolist()


def test_a_folder_that_cannot_be_made(found: JobSummary, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TranslationError, match="cannot be made"):
        found.save_csv(tmp_path / "file")


def test_what_if_and_inspection_are_short(ddp: list[Path]) -> None:
    numbers, inspection = nsys2prv_ng.what_if(ddp), nsys2prv_ng.inspect(ddp)
    for result, name, column in ((numbers, "scenarios", "saving_ns"), (inspection, "reports", "rows")):
        assert "\n" not in repr(result) and len(repr(result)) < 120
        html = result._repr_html_()
        assert html.count("<table>") >= 2 and 'style="text-align:left"' in html and len(html) < 10_000
        assert result.to_frame(name)[column].gt(0).all()
    rows = inspection.to_frame("sources").set_index("source")["rows"]
    assert rows["kernels"] == sum(len(Report(path).sql("SELECT 1 FROM CUPTI_ACTIVITY_KIND_KERNEL")) for path in ddp)


def test_a_comparison_has_a_row_for_each_run(found: JobSummary) -> None:
    comparison = nsys2prv_ng.compare([found, found, found], labels=["a", "b<i>", "c"])
    parts = comparison.to_frame("parts")
    assert parts["run"].drop_duplicates().tolist() == ["b<i>", "c"]
    rows = [row for pair in comparison.to_dict()["pairs"] for row in pair["rows"]]
    assert parts["a_ns"].tolist() == [row["a_ns"] for row in rows] and parts["difference_ns"].eq(0).all()
    kernels = comparison.to_frame("kernels")
    tables = [t for pair in comparison.to_dict()["pairs"] for t in pair["tables"] if t["key"] == "kernels"]
    assert kernels["a_ns"].tolist() == [row["a"] for table in tables for row in table["rows"]]
    html = comparison._repr_html_()
    assert "<i>" not in html and "b&lt;i&gt;" in html and html.count("<table>") == 3


def test_a_summary_always_has_a_verdict() -> None:
    """A report of NVTX ranges alone, or of nothing that a rule judges."""
    summary = nsys2prv_ng.summarize(find_set("cpu/2024.2.3-nvtx_py"))
    assert not summary.verdict.is_judged and summary.verdict.statements[0].text.startswith("none found: no GPU")
    assert not summarize_reports(find_set("samples/mpi-4")).verdict.is_judged  # before it is judged
    judged = nsys2prv_ng.summarize(find_set("samples/mpi-4"))
    assert judged.verdict.is_judged and JobSummary.from_dict(judged.to_dict()).verdict == judged.verdict
    assert not JobSummary.from_dict({**judged.to_dict(), "verdict": None}).verdict.is_judged
