"""What `open` returns: DataFrames of all or a part of a job, and errors in words."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import nsys2prv_ng
from nsys2prv_ng import OpenJob, ReportError, UsageError
from nsys2prv_ng.tables.registry import TABLES
from tests.conftest import SAMPLES
from tests.translated import changed

DDP = sorted(SAMPLES.glob("ddp-2x2.rank*.sqlite"))
GRAPH = SAMPLES / "single-graph.sqlite"
MPI = sorted(SAMPLES.glob("mpi-4.rank*.sqlite"))


@pytest.fixture(scope="module")
def job() -> OpenJob:
    with nsys2prv_ng.open(MPI) as opened:
        yield opened


def test_columns_have_the_types_and_meanings_that_are_declared(job: OpenJob) -> None:
    assert job.tables == [*TABLES] and {*TABLES} <= {*dir(job)}
    for name, table in TABLES.items():
        frame = getattr(job, name)
        assert [*frame.columns] == [column.name for column in table.columns]
        assert [str(dtype) for dtype in frame.dtypes] == [column.dtype for column in table.columns], name
        assert frame.attrs["columns"].keys() == {*frame.columns}
        assert json.loads(json.dumps(frame.attrs)) == frame.attrs  # as pandas keeps it in Parquet
        assert getattr(job, name) is frame
        for column in table.columns:
            assert column.may_lack or not frame[column.name].isna().any() or column.kind != "integer"
            if column.kind == "name":
                categories = [*frame[column.name].cat.categories]
                used = sorted({*frame[column.name].dropna()})
                assert categories == used or (column.name == "node" and {*categories} >= {*used})


def test_a_column_means_the_same_in_all_tables() -> None:
    units: dict[str, tuple[str, str]] = {}
    for table in TABLES.values():
        for column in table.columns:
            assert units.setdefault(column.name, (column.unit, column.kind)) == (column.unit, column.kind)
            assert column.meaning[0].isupper() or column.meaning.startswith(("host", "push", "split")), column.meaning


def test_a_part_of_a_table(job: OpenJob) -> None:
    whole = job.cuda_calls
    middle = int(whole["start_ns"].median())
    part = job.table("cuda_calls", columns=["name", "start_ns"], ranks=[0, 2], time=(middle, None))
    wanted = whole["rank"].isin([0, 2]) & (whole["end_ns"] >= middle)
    expected = whole.loc[wanted, ["name", "start_ns"]].reset_index(drop=True)
    assert part["start_ns"].equals(expected["start_ns"])
    assert part["name"].astype(str).equals(expected["name"].astype(str))
    assert [*part.columns] == ["name", "start_ns"]
    assert len(part) == part.attrs["read"] - sum(part.attrs["dropped"].values())
    assert part.attrs["dropped"]["of another rank or time than asked for"] == len(whole) - len(part)
    as_typed = job.table("cuda_calls", columns="name,start_ns", ranks="0,2", time=f"{middle}ns:")
    assert as_typed.equals(part)
    in_gpu_time = job.table("kernels", time="gpu")
    assert len(in_gpu_time) == len(job.kernels)


@pytest.mark.parametrize("name", TABLES)
def test_a_part_of_each_table(job: OpenJob, name: str) -> None:
    whole = getattr(job, name)
    assert len(job.table(name, ranks=[1])) == (whole["rank"] == 1).sum()


@pytest.mark.parametrize("ranks", [[99], [-1], "4-7"])
def test_ranks_that_no_report_has_are_refused(job: OpenJob, ranks: object) -> None:
    with pytest.raises(UsageError, match="ranks: none of them is in the reports, which hold 0, 1, 2, 3"):
        job.table("kernels", ranks=ranks)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": "kernel"}, "no table is called kernel; did you mean kernels?"),
        ({"name": "Kernels"}, "no table is called Kernels; did you mean kernels?"),
        ({"name": "zzz"}, "no table is called zzz; known are kernels, copies"),
        ({"name": "kernels", "columns": ["nam"]}, "no column of kernels is called nam; did you mean name?"),
        ({"name": "kernels", "columns": ["name", "?"]}, "no column of kernels is called ?; known are rank, node"),
        ({"name": "kernels", "columns": 3}, "give a list of texts"),
        ({"name": "kernels", "ranks": "x"}, "ranks"),
        ({"name": "kernels", "time": (5, 1)}, "FROM is after TO"),
    ],
)
def test_names_that_there_are_not(job: OpenJob, arguments: dict[str, object], error: str) -> None:
    with pytest.raises(UsageError) as raised:
        job.table(**arguments)  # type: ignore[arg-type]
    assert error in str(raised.value) and "\n" not in str(raised.value)


def test_an_attribute_that_there_is_not(job: OpenJob) -> None:
    with pytest.raises(AttributeError, match="did you mean kernels"):
        _ = job.kernel
    assert not hasattr(job, "__no_such__")


def test_the_clock_of_each_node() -> None:
    with nsys2prv_ng.open(DDP) as job:
        assert sorted(job.clock["name"]) == ["gpunode01", "gpunode02"]
        assert (job.clock["error_bound_us"].dropna() > 0).any()
        assert job.clock.attrs["way"] == "auto"
        assert job.clock.attrs["violations_checked"] > 0


def test_a_closed_job_says_so() -> None:
    with nsys2prv_ng.open(GRAPH) as job:
        kernels = job.kernels
    for use in (
        lambda: job.kernels,
        lambda: job.table("kernels"),
        lambda: job.clock,
        lambda: job.start_utc_ns,
        job.__enter__,
    ):
        with pytest.raises(UsageError, match="the job is closed"):
            use()
    job.close()
    assert kernels["start_ns"].sum() > 0  # the DataFrame stays


def test_two_jobs_at_once() -> None:
    """Closed in the order in which they were opened."""
    alone = [len(nsys2prv_ng.open(GRAPH).kernels), len(nsys2prv_ng.open(MPI).mpi_calls)]
    one, other = nsys2prv_ng.open(GRAPH), nsys2prv_ng.open(MPI)
    assert len(one.kernels) == alone[0]
    assert len(other.mpi_calls) == alone[1]
    assert len(one.table("kernels")) == alone[0]
    one.close()
    assert len(other.table("mpi_calls")) == alone[1]
    assert len(other.critical_path) > 0
    other.close()


def test_options_of_summarize(tmp_path: Path) -> None:
    with nsys2prv_ng.open(MPI) as whole, nsys2prv_ng.open(MPI, ranks=[1, 2]) as part:
        assert [*part.mpi_calls["rank"].unique()] == [1, 2]
        assert len(part.mpi_calls) == whole.mpi_calls["rank"].isin([1, 2]).sum()
        assert part.mpi_calls.attrs["read"] == whole.mpi_calls.attrs["read"]
        begin, ends = int(whole.kernels["start_ns"].median()), whole.kernels["end_ns"].tolist()
    with nsys2prv_ng.open(MPI, time=(begin, None)) as late:
        for name in late.tables:
            frame = getattr(late, name)
            attrs = frame.attrs
            assert len(frame) == attrs["read"] - sum(attrs["dropped"].values()) + attrs["pieces"], name
        assert 0 < len(late.kernels) <= len(MPI) + sum(report_kernels >= begin for report_kernels in ends)
    with pytest.raises(UsageError, match="align"):
        nsys2prv_ng.open(MPI, align="")


def test_chosen_steps_are_listed_alone() -> None:
    """Though those beside them end or begin within their time."""
    with nsys2prv_ng.open(DDP, steps="2:3") as job:
        assert set(job.steps["step"]) == set(job.kernels["step"].dropna()) == {2, 3}


def test_gaps_of_a_time_without_operations() -> None:
    with nsys2prv_ng.open(DDP) as job:
        after = int(job.kernels["end_ns"].max()) + 1_000_000
    with nsys2prv_ng.open(DDP, time=(after, None)) as job:
        assert not len(job.kernels) and not len(job.gaps)


def test_nodes_are_the_same_category_in_all_tables(job: OpenJob) -> None:
    """Or pandas refuses to merge tables by them."""
    with nsys2prv_ng.open(DDP) as job:
        dtypes = [getattr(job, name)["node"].dtype for name in ("kernels", "gpu_metrics", "memory", "cuda_calls")]
    assert all(dtype == dtypes[0] for dtype in dtypes)


def test_a_folder_and_a_pattern(tmp_path: Path) -> None:
    for report in MPI:
        (tmp_path / report.name).symlink_to(report.resolve())
    (tmp_path / "notes.txt").write_text("none of the reports")
    with nsys2prv_ng.open(tmp_path) as job:
        assert job.mpi_calls["rank"].nunique() == 4
    with nsys2prv_ng.open(str(tmp_path / "*rank[01].sqlite")) as job:
        assert job.mpi_calls["rank"].nunique() == 2
    with pytest.raises(UsageError, match="no report has such a name"):
        nsys2prv_ng.open(tmp_path / "*.nsys-rep")
    with pytest.raises(ReportError, match="no such file"):
        nsys2prv_ng.open(tmp_path / "absent.sqlite")


def test_a_job_without_events(tmp_path: Path) -> None:
    empty = changed(GRAPH, tmp_path / "empty.sqlite", [f"DELETE FROM {table}" for table in list_event_tables(GRAPH)])
    with nsys2prv_ng.open(empty) as job:
        for name, table in TABLES.items():
            frame = getattr(job, name)
            assert not len(frame)
            assert [str(dtype) for dtype in frame.dtypes] == [column.dtype for column in table.columns], name


def list_event_tables(report: Path) -> list[str]:
    connection = sqlite3.connect(report)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    connection.close()
    return [
        name
        for name in names
        if name.startswith(("CUPTI_", "NVTX_EVENTS", "OSRT_API", "CUDA_", "COMPOSITE", "GPU_METRICS"))
    ]


HOSTILE = ["=1+1", 'a"b,c\nd', "'; DROP TABLE x", "\u202eevil", "x" * 10_000, "NaN", "None", "", "a / b", "\x00z"]


def make_hostile(report: Path) -> Path:
    """Make a report whose NVTX ranges have hostile names."""
    report.write_bytes(GRAPH.read_bytes())
    connection = sqlite3.connect(report)
    with connection:
        query = "SELECT DISTINCT textId FROM NVTX_EVENTS WHERE textId IS NOT NULL"
        ids = [number for (number,) in connection.execute(query)]
        for number, text in zip(ids, HOSTILE, strict=False):
            connection.execute("UPDATE StringIds SET value = ? WHERE id = ?", (text, number))
        texts = connection.execute("SELECT DISTINCT text FROM NVTX_EVENTS WHERE text IS NOT NULL").fetchall()
        for (old,), text in zip(texts, HOSTILE, strict=False):
            connection.execute("UPDATE NVTX_EVENTS SET text = ? WHERE text = ?", (text, old))
    connection.close()
    return report


def test_names_are_only_data(tmp_path: Path) -> None:
    report = make_hostile(tmp_path / "hostile.sqlite")
    with nsys2prv_ng.open(report) as job:
        names = {*job.nvtx["name"].dropna()}
        assert {"=1+1", "NaN", "'; DROP TABLE x"} & names
        assert len(job.nvtx) == job.nvtx.attrs["read"] - sum(job.nvtx.attrs["dropped"].values())


def test_nothing_else_imports_pandas() -> None:
    code = "import sys, nsys2prv_ng; nsys2prv_ng.open; nsys2prv_ng.summarize; assert 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))


def test_frames_are_as_a_program_would_use_them(job: OpenJob) -> None:
    """Groups, sums and joins work on what is returned."""
    time = (job.kernels["end_ns"] - job.kernels["start_ns"]).groupby(job.kernels["name"], observed=True).sum()
    assert time.sum() == (job.kernels["end_ns"] - job.kernels["start_ns"]).sum()
    joined = pd.merge(job.kernels, job.cuda_calls, on=["rank", "process", "correlation_id"], suffixes=("", "_of_call"))
    assert len(joined) == job.kernels["launch_ns"].notna().sum()
    assert (joined["launch_ns"] == joined["start_ns_of_call"]).all()
