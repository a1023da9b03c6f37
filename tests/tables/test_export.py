"""Exports of tables, as DuckDB, polars, pyarrow and pandas read them, against the DataFrames of the same job."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from pathlib import Path

import duckdb
import pandas as pd
import polars
import pyarrow.dataset
import pyarrow.parquet
import pytest

import nsys2prv_ng
from nsys2prv_ng import TranslationError, UsageError
from nsys2prv_ng.tables import export as writing
from nsys2prv_ng.tables.registry import TABLES
from tests.cli.program_runs import run
from tests.conftest import SAMPLES
from tests.report_sets import find_set, sets
from tests.tables.test_open import HOSTILE, make_hostile

DDP = sorted(SAMPLES.glob("ddp-2x2.rank*.sqlite"))
GRAPH = SAMPLES / "single-graph.sqlite"
MPI = sorted(SAMPLES.glob("mpi-4.rank*.sqlite"))
SETS = ("samples/ddp-2x2", "samples/mpi-4", "samples/single-graph", "gpu/mpi-one-report", "public/pipit_cloverleaf")


def count(frame: pd.DataFrame) -> Counter[tuple[object, ...]]:
    """Return how often each row occurs, with None for what is missing."""
    columns = [list_values(column) for _, column in frame.items()]
    return Counter(zip(*columns, strict=True))


def list_values(column: pd.Series) -> list[object]:
    return [None if lacks else value for value, lacks in zip(column.tolist(), column.isna().tolist(), strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("name", sets(SETS, push=SETS))
def test_every_row_of_every_table(name: str, tmp_path: Path) -> None:
    """With DuckDB; the rank is the name of the folder."""
    reports = find_set(name)
    written = nsys2prv_ng.export(reports, tmp_path / "tables")
    with nsys2prv_ng.open(reports) as job:
        assert [table.name for table in written] == job.tables
        for table in written:
            frame = getattr(job, table.name)
            assert table.rows == len(frame) == table.read - sum(table.dropped.values()) + table.pieces
            assert (table.read, table.dropped) == (frame.attrs["read"], frame.attrs["dropped"])
            assert (tmp_path / "tables" / table.name).exists() == bool(len(frame))
            if len(frame):
                columns = ", ".join(f'"{column}"' for column in frame.columns)
                files = f"read_parquet('{tmp_path}/tables/{table.name}/*/*.parquet', hive_partitioning = true)"
                assert count(duckdb.sql(f"SELECT {columns} FROM {files}").df(date_as_object=True)) == count(frame)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports") / "tables"
    nsys2prv_ng.export(MPI, folder)
    return folder


def test_files_have_a_folder_for_each_rank(exported: Path) -> None:
    assert sorted(file.relative_to(exported).as_posix() for file in exported.glob("kernels/*/*")) == [
        f"kernels/rank={rank}/part-0.parquet" for rank in range(4)
    ]
    assert [path.name for path in exported.parent.iterdir()] == ["tables"]


def test_polars_pandas_and_arrow(exported: Path) -> None:
    with nsys2prv_ng.open(MPI) as job:
        calls = job.mpi_calls
    sums = calls.groupby("rank")["bytes"].sum().to_dict()
    scanned = polars.scan_parquet(exported / "mpi_calls").group_by("rank").agg(polars.col("bytes").sum()).collect()
    assert dict(scanned.iter_rows()) == sums
    frame = pd.read_parquet(exported / "mpi_calls")
    assert frame.groupby("rank", observed=True)["bytes"].sum().to_dict() == sums
    assert {str(frame[name].dtype) for name in ("bytes", "tag", "peer")} == {"Int64"}
    assert str(frame["name"].dtype) == "category"
    table = pyarrow.dataset.dataset(exported / "mpi_calls", partitioning="hive").to_table()
    assert table.num_rows == len(calls)


def test_rows_of_a_file_are_sorted_and_its_schema_says_what_they_are(exported: Path) -> None:
    for file in exported.glob("*/*/*.parquet"):
        table = TABLES[file.parts[-3]]
        read = pyarrow.parquet.read_table(file, partitioning=None)
        starts = read["start_ns"].to_pylist()
        assert starts == sorted(starts)
        columns = [column for column in table.columns if column.name != "rank"]
        assert read.schema.names == [column.name for column in columns]
        for column in columns:
            metadata = read.schema.field(column.name).metadata
            assert metadata == {b"unit": column.unit.encode(), b"meaning": column.meaning.encode()}
        about = json.loads(read.schema.metadata[b"nsys2prv_ng"])
        assert (about["table"], about["meaning"]) == (table.name, table.meaning)
        assert about["read"] - sum(about["dropped"].values()) + about["pieces"] >= read.num_rows


def test_few_rows_at_a_time_make_the_same_rows(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_ROWS", 7)
    nsys2prv_ng.export(MPI, tmp_path / "few", tables=["os_calls", "mpi_calls", "nvtx"])
    for name in ("os_calls", "mpi_calls", "nvtx"):
        for file in (tmp_path / "few" / name).glob("*/*"):
            other = exported / file.relative_to(tmp_path / "few")
            few, whole = (pyarrow.parquet.ParquetFile(path) for path in (file, other))
            assert few.num_row_groups == -(-few.metadata.num_rows // 7)
            assert few.read().to_pylist() == whole.read().to_pylist()


def test_csv(tmp_path: Path) -> None:
    done = run("export", *MPI, "out", "--format", "csv", "--tables", "mpi_calls,steps", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["mpi_calls", "steps"]
    with nsys2prv_ng.open(MPI) as job:
        calls = job.mpi_calls
    for rank in range(4):
        with (tmp_path / f"out/mpi_calls/rank={rank}/part-0.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        own = calls[calls["rank"] == rank]
        assert [*rows[0]] == [column for column in calls.columns if column != "rank"]
        assert [int(row["start_ns"]) for row in rows] == own["start_ns"].tolist()
        assert [row["name"] for row in rows] == own["name"].tolist()
        sizes = ["" if value is None else str(value) for value in list_values(own["bytes"])]
        assert [row["bytes"] for row in rows] == sizes
    assert "mpi_calls: 412 rows; 64 merged into another row of the same call" in done.stdout


def test_names_are_only_data(tmp_path: Path) -> None:
    report = make_hostile(tmp_path / "hostile.sqlite")
    with nsys2prv_ng.open(report) as job:
        names = Counter(job.nvtx["name"].tolist())
    for format in ("parquet", "csv"):
        nsys2prv_ng.export(report, tmp_path / format, format=format, tables=["nvtx"])
    assert set(HOSTILE[:3]) & set(names)
    tables = (pyarrow.parquet.read_table(file, partitioning=None) for file in (tmp_path / "parquet").glob("*/*/*"))
    assert Counter(name for table in tables for name in table["name"].to_pylist()) == names
    [file] = (tmp_path / "csv").glob("*/*/*")
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(line.replace("\0", "~") for line in lines))
    assert Counter(row["name"] for row in rows) == Counter(
        {name.replace("\0", "~"): number for name, number in names.items()}
    )


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    nsys2prv_ng.export(GRAPH, folder, tables="kernels")
    with pytest.raises(UsageError, match="has tables already"):
        nsys2prv_ng.export(GRAPH, folder, tables="nvtx")
    nsys2prv_ng.export(GRAPH, folder, tables="nvtx", force=True)
    assert [path.name for path in folder.iterdir()] == ["nvtx"]
    (folder / "mine.txt").write_text("not an export")
    with pytest.raises(UsageError, match="has other files than tables"):
        nsys2prv_ng.export(GRAPH, folder, force=True)
    assert (folder / "nvtx").exists()
    (folder / "mine.txt").rename(folder / "nvtx/mine.txt")  # beside files of an export
    with pytest.raises(UsageError, match="has other files than tables"):
        nsys2prv_ng.export(GRAPH, folder, force=True)
    (folder / "nvtx/mine.txt").unlink()
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UsageError, match="is a file"):
        nsys2prv_ng.export(GRAPH, file, force=True)
    (tmp_path / "link").symlink_to("out")
    nsys2prv_ng.export(GRAPH, tmp_path / "link", tables="kernels", force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "out"]
    assert [path.name for path in folder.iterdir()] == ["kernels"] and (tmp_path / "link").is_symlink()


def test_jobs_without_ranks_are_read_as_any_other(tmp_path: Path) -> None:
    """Their rank is -1, in which programs group and join."""
    nsys2prv_ng.export(GRAPH, tmp_path / "out", tables="kernels,cuda_calls")
    files = tmp_path / "out/kernels"
    assert pd.read_parquet(files)["rank"].astype(int).unique().tolist() == [-1]
    with nsys2prv_ng.open(GRAPH) as job:
        assert job.kernels.groupby("rank").size().to_dict() == {-1: len(job.kernels)}
        joined = pd.merge(job.kernels, job.cuda_calls, on=["rank", "process", "correlation_id"])
    calls = f"'{tmp_path}/out/cuda_calls/*/*.parquet'"
    query = f"SELECT count(*) FROM '{files}/*/*.parquet' JOIN {calls} USING (rank, process, correlation_id)"
    assert duckdb.sql(query).fetchall() == [(len(joined),)] and len(joined) > 0


def test_after_an_error_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "out"
    nsys2prv_ng.export(GRAPH, folder, tables="kernels")
    before = sorted(folder.rglob("*"))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "_write_file", fail)
    with pytest.raises(TranslationError, match="cannot be written: No space left on device"):
        nsys2prv_ng.export(GRAPH, folder, tables="kernels,nvtx", force=True)
    assert sorted(folder.rglob("*")) == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_export_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".out.0123abcd.tmp"
    (left / "kernels").mkdir(parents=True)
    other = tmp_path / ".out.not-hexa.tmp"
    other.mkdir()
    nsys2prv_ng.export(GRAPH, tmp_path / "out", tables="nvtx")
    assert not left.exists() and other.exists()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--tables", "kernel"], "--tables kernel: no table is called kernel; did you mean kernels?"),
        (["--tables", "kernels,zzz"], "no table is called zzz; known are kernels, copies"),
        (["--format", "xlsx"], "--format xlsx: must be parquet or csv"),
    ],
)
def test_wrong_words(words: list[str], error: str, tmp_path: Path) -> None:
    done = run("export", GRAPH, "out", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert error in done.stderr
    assert not [*tmp_path.iterdir()]


def test_a_folder_is_needed(tmp_path: Path) -> None:
    done = run("export", "out", cwd=tmp_path)
    assert done.returncode == 2 and "no report to export into out" in done.stderr


@pytest.mark.slow
def test_several_reports_of_a_rank_have_a_part_each(tmp_path: Path) -> None:
    """Capture ranges of one process."""
    reports = [tmp_path / "a.sqlite", tmp_path / "b.sqlite"]
    for report in reports:
        shutil.copy(MPI[2], report)
    nsys2prv_ng.export(reports, tmp_path / "out", several_jobs=True, tables="mpi_calls,nvtx")
    assert [path.name for path in sorted((tmp_path / "out/mpi_calls/rank=2").iterdir())] == [
        "part-0.parquet",
        "part-1.parquet",
    ]
