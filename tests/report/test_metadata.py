"""What a report says of itself, in each of the ways that versions of nsys write it."""

from __future__ import annotations

import json
import re
import sqlite3

import numpy as np
import pytest

from nsys2prv_ng.report.database import Database
from nsys2prv_ng.report.metadata import Strings, read_metadata
from tests.sources.nccl.nccl_reports import (
    BLOB,
    COMMUNICATOR,
    HEXADECIMAL,
    JSON,
    NO_PAYLOAD,
    RANK,
    RANKS,
    Call,
    write_nccl_report,
)
from tests.sources.small_reports import PROCESS, UTC, export


def metadata_of(path):
    database = Database(path)
    try:
        return read_metadata(database, Strings(database))
    finally:
        database.close()


def init(process, rank, ranks=2, communicator=2**63 + 5, begin=5):
    payload = {COMMUNICATOR: communicator, RANKS: ranks, RANK: rank, "CUDA device": 0}
    return Call(begin, begin + 1, "ncclCommInitRank", payload, process, process)


@pytest.mark.slow
@pytest.mark.parametrize(("form", "known"), [(JSON, True), (BLOB, True), (HEXADECIMAL, True), (NO_PAYLOAD, False)])
def test_ranks_of_nccl(tmp_path, form, known):
    """The largest communicator of a process tells its rank; pids are in the other order."""
    calls = [init(70, 1), init(80, 0), init(70, 0, ranks=1, communicator=9, begin=8)]
    metadata = metadata_of(write_nccl_report(tmp_path / "a.sqlite", calls, form=form))
    ranks = {process & 0xFFFFFF: rank for process, rank in metadata.nccl_ranks.items()}
    assert ranks == ({70: 1, 80: 0} if known else {})


def test_environment_is_an_allow_list(tmp_path):
    secret = "AWS_SECRET_ACCESS_KEY=hidden;SLURM_JWT=token;SLURM_PROCID=3;RANK=2;MY_RANKING=1;OMPI_COMM_WORLD_RANK=2"
    tables = {
        "TARGET_INFO_SYSTEM_ENV": (("name", "value"), [("Hostname", "host"), ("DeviceEnvironment", secret)]),
        "META_DATA_CAPTURE": (
            ("name", "value"),
            [
                ("PROCESS_0:ENVIRONMENT_VARIABLE", 'TOKEN="hidden"'),
                ("PROCESS_0:ENVIRONMENT_VARIABLE", 'CUDA_VISIBLE_DEVICES="0,1"'),
                ("PROCESS_0:COMMAND", "RANK=9"),
            ],
        ),
    }
    metadata = metadata_of(export(tmp_path / "a.sqlite", [""], tables))
    assert metadata.environment == {
        "SLURM_PROCID": "3",
        "RANK": "2",
        "OMPI_COMM_WORLD_RANK": "2",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    assert metadata.rank == 2


@pytest.mark.parametrize(
    ("launcher", "rank", "size"),
    [
        ("OMPI_COMM_WORLD_RANK=3;OMPI_COMM_WORLD_SIZE=4", 3, 4),
        ("MV2_COMM_WORLD_RANK=3;MV2_COMM_WORLD_SIZE=4", 3, 4),
        ("PMI_RANK=3;PMI_SIZE=4", 3, 4),
        ("RANK=3;WORLD_SIZE=4;OMPI_COMM_WORLD_RANK=1", 3, 4),
        ("", 0, 8),
    ],
)
def test_a_launcher_within_a_batch_script(tmp_path, launcher, rank, size):
    """What mpirun starts inherits the script's SLURM_PROCID, which is 0 (Lightning-AI/pytorch-lightning, 11406)."""
    assert launched_by(tmp_path, f"SLURM_PROCID=0;SLURM_NTASKS=8;{launcher}") == (rank, size)
    assert environment_of(tmp_path, f"SLURM_PROCID=0;SLURM_NTASKS=8;{launcher}").job_size == size


@pytest.mark.parametrize(
    ("environment", "size"),
    [
        ("PMIX_RANK=3", None),
        ("PALS_RANKID=3", None),
        ("FLUX_TASK_RANK=3;FLUX_JOB_SIZE=4", 4),
        ("JSM_NAMESPACE_RANK=3;JSM_NAMESPACE_SIZE=4", 4),
    ],
)
def test_other_launchers(tmp_path, environment, size):
    assert launched_by(tmp_path, environment) == (3, size)
    assert environment_of(tmp_path, environment).job_size == (size or 0)
    assert environment_of(tmp_path, f"{environment};WORLD_SIZE=2;SLURM_NTASKS=6").job_size == (size or 6)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (("EXPORT_PARAM_TIMES_TO_EXPORT", "1s/2s"), "holds only a part of the report (times 1s/2s)"),
        (("EXPORT_PARAM_TABLES_TO_EXPORT", "CUPTI.*"), "holds only a part of the report (tables CUPTI.*)"),
        (("EXPORT_PARAM_APPEND", "true"), "events may be there twice"),
        (("EXPORT_PARAM_APPEND", "false"), ""),
        (("EXPORT_PARAM_TIMES_TO_EXPORT", ""), ""),
    ],
)
def test_exports_of_parts(tmp_path, setting, says):
    tables = {"META_DATA_EXPORT": (("name", "value"), [("EXPORT_SCHEMA_VERSION", "3.20.3"), setting])}
    warnings = metadata_of(export(tmp_path / "a.sqlite", [""], tables)).warnings
    assert len(warnings) == bool(says) and all(says in warning for warning in warnings)


@pytest.mark.parametrize("path", ["/usr/bin/python3", r"C:\Users\me\python3", "python3"])
def test_names_of_programs(tmp_path, path):
    tables = {"PROCESSES": (("globalPid", "name"), [(PROCESS, path)])}
    assert metadata_of(export(tmp_path / "a.sqlite", [""], tables)).get_process_name(PROCESS >> 24) == "python3"


def environment_of(folder, environment):
    """Return the metadata of a report with a captured environment."""
    (folder / "a.sqlite").unlink(missing_ok=True)
    rows = [("Hostname", "host"), ("DeviceEnvironment", environment)]
    return metadata_of(export(folder / "a.sqlite", [""], {"TARGET_INFO_SYSTEM_ENV": (("name", "value"), rows)}))


def launched_by(folder, environment):
    """Return the rank and the number of ranks in a captured environment."""
    launched = environment_of(folder, environment).launched
    return launched.rank, launched.size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ("SLURM_PROCID=4", 4),
        ("PMI_RANK=5;SLURM_PROCID=4", 5),
        ("OMPI_COMM_WORLD_RANK=6", 6),
        ("RANK=;PMI_RANK=7", 7),
        ("A=1;RANK=9\0PMI_RANK=8\0B=2", 8),
        ("A=1\0RANK=9\0PMI_RANK=8", 9),
        ("RANK=-1", None),
        ("RANK=x", None),
        ("", None),
    ],
)
def test_rank_of_the_environment(tmp_path, variables, rank):
    tables = {"TARGET_INFO_SYSTEM_ENV": (("name", "value"), [("DeviceEnvironment", variables)])}
    assert metadata_of(export(tmp_path / "a.sqlite", [""], tables)).rank == rank


def test_nothing_but_strings(tmp_path):
    """The least that is an export: everything else is missing, as in old or cut exports."""
    with sqlite3.connect(tmp_path / "a.sqlite") as connection:
        connection.execute("create table StringIds (id integer, value text)")
    metadata = metadata_of(tmp_path / "a.sqlite")
    assert (metadata.utc_of_zero, metadata.host, metadata.ranks, metadata.gpus) == (None, "unknown host", {}, {})
    assert any("when it was captured" in warning for warning in metadata.warnings)


@pytest.mark.parametrize("table", ["META_DATA_EXPORT", "EXPORT_META_DATA"])
def test_both_names_of_the_metadata_table(tmp_path, table):
    rows = [("EXPORT_SCHEMA_VERSION", "3.0.0"), ("EXPORT_PRODUCT_VERSION", "2022.4.2.1")]
    path = export(tmp_path / "a.sqlite", [""], {})
    with sqlite3.connect(path) as connection:
        connection.execute("drop table META_DATA_EXPORT")
        connection.execute(f"create table {table} (name text, value text)")
        connection.executemany(f"insert into {table} values (?, ?)", rows)
    metadata = metadata_of(path)
    assert (metadata.schema_version, metadata.nsys_version) == ("3.0.0", "2022.4.2.1")


def test_text_that_is_not_utf8(tmp_path):
    path = export(tmp_path / "a.sqlite", ["", "x"], {})
    with sqlite3.connect(path) as connection:
        connection.execute("update StringIds set value = cast(x'6162ff63' as text) where id = 1")
    database = Database(path)
    assert Strings(database)(np.array([1, 5])) == ["ab\ufffdc", "name 5"]
    database.close()


@pytest.mark.slow
@pytest.mark.parametrize("value", ["NULL", "'x'", "'7'", "x'00ff'", "0.5", "9e999", "1e300"])
def test_ids_of_names_that_are_no_integers(tmp_path, value):
    """Such rows are damage: they name nothing, and whoever looks for a name does not get their ids."""
    path = export(tmp_path / "a.sqlite", ["", "ncclCommInitRank", "ncclCommInitRankConfig"], {})
    with sqlite3.connect(path) as connection:
        connection.execute("create table damaged as select * from StringIds")
        connection.execute("drop table StringIds")
        connection.execute("alter table damaged rename to StringIds")
        connection.execute(f"update StringIds set id = {value} where id = 1")
        connection.execute("update StringIds set id = 2.0 where id = 2")
    database = Database(path)
    strings = Strings(database)
    assert strings.find_matching_ids(re.compile("nccl.*").fullmatch) == [2]
    assert strings(np.array([1, 2])) == ["name 1", "ncclCommInitRankConfig"]
    assert read_metadata(database, strings).nccl_ranks == {}
    database.close()


@pytest.mark.parametrize(
    ("rows", "utc"),
    [([], UTC), ([("EXPORT_PARAM_TIME_NORMALIZE", "false")], UTC), ([("EXPORT_PARAM_TIME_NORMALIZE", "true")], 0)],
)
def test_normalised_exports_are_not_shifted_twice(tmp_path, rows, utc):
    tables = {"META_DATA_EXPORT": (("name", "value"), [("EXPORT_SCHEMA_VERSION", "3.20.3"), *rows])}
    assert metadata_of(export(tmp_path / "a.sqlite", [""], tables)).utc_of_zero == utc


@pytest.mark.slow
def test_json_that_is_no_payload(tmp_path):
    """Damaged payloads say nothing."""
    path = write_nccl_report(tmp_path / "a.sqlite", [init(70, 1)])
    for text in ("{", "[]", "3", "[" * 10**5, '{"No. of ranks": 1e999, "Rank": 0}', json.dumps({RANK: "x", RANKS: 2})):
        with sqlite3.connect(path) as connection:
            connection.execute("update NVTX_EVENTS set jsonText = ? where eventType = 59", (text,))
        assert metadata_of(path).nccl_ranks == {}


def test_ranks_by_the_name_of_a_thread(shared_reports):
    """2022.4.2 has no MPI_RANKS: it names the thread that called MPI_Init."""
    for rank in (0, 1):
        metadata = metadata_of(shared_reports / f"cpu/2022.4.2-ompi_rank{rank}.sqlite")
        assert list(metadata.ranks.values()) == [rank]


@pytest.mark.parametrize("value", ["9e999", "-9e999", "1e300", str(2**62), str(-(2**63)), "'x'", "x'00ff'", "NULL"])
def test_numbers_that_are_none(tmp_path, value):
    """Infinite, beyond 64 bits or centuries away: as if they were not there."""
    tables = {
        "TARGET_INFO_SESSION_START_TIME": (("utcEpochNs", "systemClockNs"), [(UTC, UTC)]),
        "ThreadNames": (("globalTid", "nameId"), [(1 << 24 | 1, 1)]),
        "MPI_RANKS": (("globalTid", "rank"), [(1 << 24, 0)]),
        "PROCESSES": (("globalPid", "name"), [(1 << 24, "program")]),
        "TARGET_INFO_GPU": (("id", "name", "uuid", "busLocation"), [(0, "gpu", "", "")]),
        "NVTX_EVENTS": (("globalTid", "text", "textId", "eventType"), [(1 << 24 | 1, None, 1, 39)]),
    }
    path = export(tmp_path / "a.sqlite", ["", "thread"], tables)
    with sqlite3.connect(path) as connection:
        for table, (columns, _) in tables.items():
            for column in set(columns) - {"eventType"}:
                connection.execute(f"update {table} set {column} = {value}")
        connection.execute(f"update ANALYSIS_DETAILS set duration = {value}")
    metadata = metadata_of(path)
    assert (metadata.utc_of_zero, metadata.boot_utc, metadata.duration, metadata.begin) == (None, None, 0, 0)
    assert metadata.ranks == {}
    assert any("when it was captured" in warning for warning in metadata.warnings)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [-1, 2**22, 2**31 - 1, 2**62])
def test_ranks_that_no_job_has(tmp_path, rank):
    """They would be counted up to, or be too large for what Paraver labels."""
    ranks = {"MPI_RANKS": (("globalTid", "rank"), [(70 << 24, rank)])}
    assert metadata_of(export(tmp_path / "a.sqlite", [""], ranks)).ranks == {}
    named = {"ThreadNames": (("globalTid", "nameId"), [(70 << 24, 1)])}
    assert metadata_of(export(tmp_path / "b.sqlite", ["", "MPI Rank " + "9" * 5000], named)).ranks == {}
    assert metadata_of(write_nccl_report(tmp_path / "c.sqlite", [init(70, 0, ranks=max(rank, 0))])).nccl_ranks == {}


@pytest.mark.parametrize("shift", ["9" * 5000, str(2**63), str(2**62), "x", "\u0663"])
def test_shifts_that_are_none(tmp_path, shift):
    rows = [("EXPORT_PARAM_TIME_SHIFT", shift), ("EXPORT_SCHEMA_VERSION", f"{'9' * 5000}.1")]
    metadata = metadata_of(export(tmp_path / "a.sqlite", [""], {"META_DATA_EXPORT": (("name", "value"), rows)}))
    assert (metadata.utc_of_zero, metadata.begin) == (UTC, 0)


def test_a_host_name_that_steers_terminals(tmp_path):
    assert metadata_of(export(tmp_path / "a.sqlite", [""], {}, host="a\nb\x1b[31m\x7f")).host == "a?b?[31m?"


@pytest.mark.parametrize(
    ("name", "uses"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", True),
        ("ncclAllReduce", True),
        ("pt_nccl_watchdg", True),
        ("NCCL Progress 0", True),
        ("NCCL_NET_GDR_LEVEL=PHB", False),
        ("/usr/lib/libnccl.so.2", False),
        ("ampere_sgemm_128x64_nn", False),
    ],
)
def test_whether_a_report_uses_nccl(tmp_path, name, uses):
    assert metadata_of(export(tmp_path / "a.sqlite", ["", name], {})).uses_nccl is uses
