"""Logs of the NCCL Inspector beside reports; the logs are made by its documentation."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.nccl.inspector import read_inspector_logs
from tests.sources.nccl.inspector_logs import record, write_log
from tests.sources.nccl.nccl_reports import COMMUNICATOR, OPERATION, PEER, SIZE, Call, execute, write_nccl_report

HASH = 0xE62DEDAA97644A
KEY = f"{HASH:016x}"
README = """{
  "header": {
    "id": "0x7f8c496ae9f661",
    "rank": 2,
    "n_ranks": 8,
    "nnodes": 1
  },
  "metadata": {
    "inspector_output_format_version": "v4.0",
    "git_rev": "",
    "rec_mechanism": "profiler_plugin",
    "dump_timestamp_us": 1748030377748202,
    "hostname": "example-hostname",
    "pid": 1639453
  },
  "coll_perf": {
    "coll": "AllReduce",
    "coll_sn": 1407,
    "coll_msg_size_bytes": 17179869184,
    "coll_exec_time_us": 61974,
    "coll_algobw_gbs": 277.210914,
    "coll_busbw_gbs": 485.119099
  }
}
"""
"""The example of the README."""


def write_report(folder: Path, rank: int = 0, size: int = 16384) -> Path:
    payload = {COMMUNICATOR: HASH, SIZE: size, OPERATION: "Sum"}
    calls = [Call(1000, 1100, "ncclAllReduce", payload), Call(1200, 1300, "ncclAllReduce", {**payload, SIZE: 8})]
    return write_nccl_report(folder / f"rank{rank}.sqlite", calls, environment=f"RANK={rank};WORLD_SIZE=2")


def join(report: Path, logs: Path) -> tuple[str, list[str]]:
    """Return the label of the communicator, and the warnings about logs."""
    with open_job([report], report.parent, ReadOptions(nccl_inspector=logs), Progress()) as job:
        [assigned] = [part.assigned for part in job.joined if types.NCCL_COMMUNICATOR.names in part.assigned]
        [value] = assigned[types.NCCL_COMMUNICATOR.names].values()
        return value.label, [text for text in job.warnings if "Inspector" in text]


def test_the_example_of_the_readme_is_read(tmp_path: Path) -> None:
    (tmp_path / "a-pid1639453.log").write_text(README)
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "b.jsonl.gz").write_bytes(gzip.compress(README.replace('"rank": 2', '"rank": 3').encode()))
    logs = read_inspector_logs(tmp_path)
    assert logs.surprises == []
    [(key, found)] = logs.communicators.items()
    assert (key, found.name, found.size) == ("007f8c496ae9f661", "", 8)
    assert found.bytes == {"ncclAllReduce": {17179869184}}
    assert found.find_rank("example-hostname", 1639453) is None  # two ranks of one process
    assert found.find_rank("another", 1639453) is None


def test_logs_name_communicators_and_tell_their_size(tmp_path: Path) -> None:
    report = write_report(tmp_path)
    logs = write_log(tmp_path / "logs/a.log", record(HASH, 0, 2, [("AllReduce", 16384)], name="DP `Group`\n0"))
    assert join(report, logs) == ("communicator 1, `DP 'Group' 0` (2 ranks)", [])


def test_without_a_name_the_label_stays(tmp_path: Path) -> None:
    report = write_report(tmp_path)
    logs = write_log(tmp_path / "logs/a.log", record(HASH, 0, 2, [("AllReduce", 16384)]))
    assert join(report, logs) == ("communicator 1 (2 ranks)", [])


def test_logs_tell_the_ranks_of_processes(tmp_path: Path) -> None:
    """Rank 0 of the communicator is rank 1 of the job, which no call records."""
    paths = []
    for rank in range(2):
        call = Call(1000, 1100, "ncclSend" if rank else "ncclRecv", {COMMUNICATOR: HASH, SIZE: 64, PEER: rank})
        environment = f"RANK={rank};WORLD_SIZE=2"
        paths.append(write_nccl_report(tmp_path / f"rank{rank}.sqlite", [call], environment=environment))
    # The send goes to rank 1 of the communicator, and the receive is from rank 0. The processes have the same pid here.
    groups = [record(HASH, 1 - rank, 2, [("Send", 65536)], host=f"node{rank}") for rank in range(2)]
    logs = write_log(tmp_path / "logs/a.log", *groups)
    for rank, path in enumerate(paths):
        execute(path, f"UPDATE TARGET_INFO_SYSTEM_ENV SET value = 'node{rank}' WHERE name = 'Hostname'")
    for folder, written in ((None, 0), (logs, 1)):
        with open_job(paths, tmp_path, ReadOptions(nccl_inspector=folder), Progress()) as job:
            [account] = [part.accounts["nccl_messages"] for part in job.joined if "nccl_messages" in part.accounts]
            assert account.written == written
            assert not [text for text in job.warnings if "Inspector" in text]


@pytest.mark.parametrize(
    ("groups", "end", "wanted"),
    [
        ([record(5, 0, 2, [("AllReduce", 16384)])], "", "they have no communicator of the reports"),
        ([record(HASH, 0, 2, [("AllReduce", 8192)])], "", f"other sizes for ncclAllReduce on {KEY}"),
        (
            [record(HASH, 0, 2, [("AllReduce", 16384)]), record(HASH, 0, 4, [("AllReduce", 16384)])],
            "",
            f"other numbers of ranks for {KEY}",
        ),
        ([record(HASH, 0, 2, [("AllReduce", 16384)], version="v9.0")], "", "unknown format `v9.0`"),
        ([record(HASH, 0, 2, [("AllReduce", 16384)])], '{"header":{"id":"0x', "1 file with damaged records"),
        ([], '{"other": 1}\n', "records without the id of a communicator"),
        ([], "", "they have no records"),
        ([], "no JSON\n", "1 file with damaged records"),
    ],
)
def test_what_does_not_fit_is_one_warning(
    tmp_path: Path, groups: list[list[dict[str, object]]], end: str, wanted: str
) -> None:
    logs = write_log(tmp_path / "logs/a.log", *groups, end=end)
    label, warnings = join(write_report(tmp_path), logs)
    assert len(warnings) == 1
    assert wanted in warnings[0]
    assert label.startswith("communicator 1 (")


def test_sizes_that_a_log_lacks_are_no_contradiction(tmp_path: Path) -> None:
    """The Inspector does not record small operations, and drops others: 8 bytes are in no log."""
    logs = write_log(tmp_path / "logs/a.log", record(HASH, 0, 2, [("AllReduce", 16384), ("AllReduce", 32768)]))
    report = write_report(tmp_path)
    assert join(report, logs)[1] == []
    small = write_log(tmp_path / "small/a.log", record(HASH, 0, 2, [("AllReduce", 32768)]))
    assert join(report, small)[1] == []


def test_a_folder_without_logs_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UsageError, match="holds no logs"):
            read_inspector_logs(folder)
