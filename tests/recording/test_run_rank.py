"""run-rank and record, as processes, with a program that stands in for nsys."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng.recording.record import find_rank
from nsys2prv_ng.report import nsys as nsys_module
from nsys2prv_ng.report.nsys import find_nsys
from tests.bundled.fake_slurm import PROFILING, Cluster
from tests.cli.program_runs import run
from tests.cli.test_program import assert_one_line
from tests.conftest import SAMPLES
from tests.tiers import cases

RANKS = [SAMPLES / f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)]
DEFAULT = "nsys2prv-ng: recording the first 60 s of the program"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, RANKS)


def finish(task: subprocess.Popen[str]) -> tuple[int, str]:
    output = task.communicate(timeout=60)[0]
    return task.returncode, output


def wait_for(path: Path, task: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert task.poll() is None
        time.sleep(0.02)


# ---- the program under nsys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ends", "code"), cases([("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)], quick=1))
def test_the_exit_status_is_that_of_the_program(cluster: Cluster, ends: str, code: int) -> None:
    ended, output = finish(cluster.rank("run-rank", "--", "sh", "-c", ends, rank=2))
    assert (ended, output) == (code, ""), "only the first rank says what is recorded"
    assert cluster.of_rank(2) == RANKS[2].read_bytes()
    [call] = cluster.profiled()
    assert call["options"] | {"--session-new": "", "--output": ""} == {
        **{"--trace": "cuda,nvtx,osrt,mpi", "--sample": "none", "--cpuctxsw": "none", "--kill": "none"},
        **{"--force-overwrite": "true", "--session-new": "", "--output": ""},
    }
    assert call["options"]["--output"] == f"{cluster.reports}/rank2"


WORDS = ["a b", "it's", "", '"$x"', "\\n", "--", "--help", "*", "-o"]


@pytest.mark.parametrize("ranks", ["0-3", "1,2"])
def test_the_program_gets_its_words_its_input_and_its_environment(cluster: Cluster, ranks: str) -> None:
    """Also where nsys does not run. nsys gets few variables, since its report has them, and adds some of its own."""
    shows = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), sys.stdin.read()]))"
    environment = {"AWS_SECRET": "x=\ny", "SLURM_JWT": "secret", "LANG": "C", "LD_PRELOAD": "", "EMPTY": ""}
    words = ["--ranks", ranks, "--", sys.executable, "-c", shows, *WORDS]
    task = cluster.rank("run-rank", *words, rank=3, local=1, **environment)
    code, output = finish(task)
    assert code == 0, output
    got, seen, read = json.loads(output.splitlines()[-1])
    assert (got, read) == (WORDS, "")
    expected = {**cluster.environment, **environment, "SLURM_PROCID": "3", "SLURM_LOCALID": "1"}
    under_nsys = {"NVTX_INJECTION64_PATH": "/nsys/lib.so"} if ranks == "0-3" else {}
    assert expected.items() <= seen.items()
    added = {*under_nsys, "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_JOB_ID", "OPENBLAS_NUM_THREADS", "LC_CTYPE"}
    assert set(seen) - set(expected) <= {*added, "PWD", "SHLVL", "_", "OLDPWD"}
    assert under_nsys.items() <= seen.items()
    if ranks == "0-3":
        [call] = cluster.profiled()
        assert call["program"] == words[3:]
        assert not {"AWS_SECRET", "SLURM_JWT", "EMPTY", "FAKE_SLURM"} & set(call["seen"])
        assert {"PATH", "HOME", "SLURM_PROCID", "NSYS_FAKE"} <= set(call["seen"])
    else:
        assert not (cluster.folder / "nsys.jsonl").exists() and not cluster.reports.exists()


def test_the_program_gets_open_files(cluster: Cluster) -> None:
    """Slurm's PMI gives MPI a socket that is open, and its number in PMI_FD."""
    cluster.offer(cluster.bin / "task", 'exec 7<<<hello; exec nsys2prv-ng "$@"')
    done = subprocess.run(
        [cluster.bin / "task", "run-rank", "--whole", "--", "cat", "/dev/fd/7"],
        **{"cwd": cluster.work, "env": cluster.environment, "capture_output": True, "text": True, "check": False},
    )
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr


def test_a_program_that_cannot_be_started(cluster: Cluster) -> None:
    for ranks in ("0", "1"):
        code, output = finish(cluster.rank("run-rank", "--ranks", ranks, "--", "./no such"))
        assert code == {"0": 127, "1": 1}[ranks]
        assert "nsys2prv-ng: error: ./no such: cannot be started: No such file or directory\n" in output
        assert "Traceback" not in output


def test_without_nsys_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_module, "INSTALL_FOLDERS", ())
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("NSYS_HOME", raising=False)
    line = assert_one_line(run("run-rank", "-o", "out", "--", "touch", "started", cwd=tmp_path), 1)
    assert line.endswith("no nsys, so nothing was started: load its module, or set NSYS_HOME to its folder")
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_nothing_starts(cluster: Cluster) -> None:
    (cluster.work / "file").touch()
    code, output = finish(cluster.rank("run-rank", "-o", "file/out", "--", "touch", "started"))
    assert code == 1 and output.endswith("so nothing was started; choose another folder\n")
    assert not (cluster.work / "started").exists()


def test_a_report_of_before_is_replaced(cluster: Cluster) -> None:
    cluster.reports.mkdir()
    (cluster.reports / "rank0.nsys-rep").write_text("old")
    code, output = finish(cluster.rank("run-rank", "--delay", "100", "--", "true"))
    assert code == 0 and cluster.of_rank(0) == b"", "no report of before is taken for this one's"
    assert "no report of rank 0: the program ended before the recording began; choose a shorter --delay" in output


# ---- what is recorded ------------------------------------------------------------------------------------------------


def test_the_program_continues_after_the_recording(cluster: Cluster) -> None:
    goes_on = "until test -e profile-42/rank0.nsys-rep; do sleep 0.05; done; touch recorded; sleep 0.5; exit 5"
    code, output = finish(cluster.rank("run-rank", "--duration", "1", "--", "sh", "-c", goes_on))
    assert code == 5 and (cluster.work / "recorded").exists()
    assert "nsys2prv-ng: recording the first 1 s of the program (choose by" in output
    assert cluster.of_rank(0) == RANKS[0].read_bytes()


@pytest.mark.parametrize(
    ("words", "says", "options"),
    [
        ([], DEFAULT, {}),
        (["--whole"], "", {}),
        (["--delay=1", "--duration=7"], "recording 7 s, from 1 s on", {"--delay": "1"}),
        (
            ["--capture-range"],
            "recording from cudaProfilerStart to cudaProfilerStop",
            {"--capture-range": "cudaProfilerApi", "--capture-range-end": "stop"},
        ),
        (["--whole", "--nsys=--trace=cuda,ucx", "--nsys=--x=y=z"], "", {"--trace": "cuda,ucx", "--x": "y=z"}),
    ],
)
def test_what_is_recorded(cluster: Cluster, words: list[str], says: str, options: dict[str, str]) -> None:
    code, output = finish(cluster.rank("run-rank", *words, "--", "sleep", "1.2"))
    assert code == 0
    assert says in output and bool(says) == bool(output) and output.count("\n") <= 1
    [call] = cluster.profiled()
    assert options.items() <= call["options"].items()
    assert cluster.of_rank(0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--capture-range", "--delay", "5"], "--delay 5: cannot be combined with --capture-range"),
        (["--capture-range", "--whole"], "--whole: cannot be combined with --capture-range"),
        (["--whole", "--duration", "5"], "--duration 5: cannot be combined with --whole"),
        (["--nsys=-t"], "--nsys -t: write --nsys=--NAME=VALUE"),
        (["--nsys=--duration=5"], "--nsys --duration=5: nsys2prv-ng sets it itself (see --help)"),
        (["--duration", "0"], "--duration 0: must be at least 1"),
    ],
)
def test_choices_that_exclude_each_other(words: list[str], message: str) -> None:
    assert assert_one_line(run("run-rank", *words, "--", "true"), 2) == f"nsys2prv-ng: error: {message}"


@pytest.mark.parametrize(
    ("refuses", "options"),
    [
        ([], {"--gpu-metrics-devices": "all", "--nic-metrics": "lf"}),
        (["--gpu-metrics-devices", "--nic-metrics=lf"], {"--gpu-metrics-device": "all", "--nic-metrics": "true"}),
        (["--gpu-metrics-devices", "--gpu-metrics-device"], {"--nic-metrics": "lf"}),
    ],
)
def test_one_rank_of_a_node_samples_metrics(cluster: Cluster, refuses: list[str], options: dict[str, str]) -> None:
    cluster.behave(refuses=refuses)
    for rank, local in ((2, 0), (3, 1)):
        code, output = finish(cluster.rank("run-rank", "--node-metrics", "--", "sleep", "0", rank=rank, local=local))
        assert code == 0
        left_out = rank == 2 and len(options) == 1
        assert ("recording without --gpu-metrics-devices=all: Illegal" in output) == left_out, output
    metrics = [{name: v for name, v in call["options"].items() if "metrics" in name} for call in cluster.profiled()]
    assert metrics == [options, {}]


@pytest.mark.parametrize(
    ("environment", "rank", "is_first"),
    [
        ({}, None, True),
        ({"RANK": "5", "LOCAL_RANK": "1"}, 5, False),
        ({"SLURM_PROCID": "4", "SLURM_LOCALID": "0"}, 4, True),
        ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "OMPI_COMM_WORLD_RANK": "3", "PMIX_RANK": "3"}, 3, False),
        ({"PMI_RANK": "6", "MPI_LOCALRANKID": "0"}, 6, True),
        ({"PMIX_RANK": "0"}, 0, True),
        ({"RANK": "../x", "PALS_RANKID": "1", "PALS_LOCAL_RANKID": "1"}, 1, False),
    ],
)
def test_the_rank_is_that_of_the_launcher(environment: dict[str, str], rank: int | None, is_first: bool) -> None:
    assert find_rank(environment) == (rank, is_first)


def test_ranks_for_pytorch(cluster: Cluster) -> None:
    shows = ["--", "sh", "-c", "echo $RANK $LOCAL_RANK $WORLD_SIZE"]
    assert finish(cluster.rank("run-rank", "--set-ranks", *shows, rank=3, local=1)) == (0, "3 1 4\n")
    assert finish(cluster.rank("run-rank", *shows, rank=3, local=1)) == (0, "\n")
    code, output = finish(cluster.rank("run-rank", "--set-ranks", *shows, slurm=False))
    assert (code, output.splitlines()[-1]) == (0, ""), "not without srun"
    assert (cluster.work / "profile" / "report.nsys-rep").exists()


# ---- signals ---------------------------------------------------------------------------------------------------------

PATIENT = "from nsys2prv_ng.recording import record\nrecord._PATIENCE_S, record._END_OF_RECORDING_S = 4, 1\n"
TRAPS = "trap 'echo got {0} >>got' {0}; touch ready; until test -e got; do sleep 0.05; done; sleep 1.5; exit 5"


def start_ready(cluster: Cluster, program: str, *words: str) -> subprocess.Popen[str]:
    """Start a rank that does not wait long, and wait until its program is ready."""
    code = f"{PATIENT}from nsys2prv_ng.cli.program import main\nmain()"
    command = shlex.join([sys.executable, "-c", code])
    cluster.offer(cluster.bin / "nsys2prv-ng", f'exec {command} "$@"')
    task = cluster.rank("run-rank", *words, "--", "sh", "-c", program)
    wait_for(cluster.work / "ready", task)
    (cluster.folder / "step").write_text(json.dumps([task.pid]))
    return task


@pytest.mark.parametrize(
    ("sent", "code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGUSR1, 143), (signal.SIGUSR2, 143)],
)
def test_a_signal_ends_a_program_that_does_not_handle_it(cluster: Cluster, sent: signal.Signals, code: int) -> None:
    """The signals with which Slurm announces a time limit end it like a SIGTERM."""
    task = start_ready(cluster, "touch ready; exec sleep 100")
    task.send_signal(sent)
    ended, output = finish(task)
    assert (ended, output.count("\n")) == (code, 1), output
    assert cluster.of_rank(0) == RANKS[0].read_bytes()


@pytest.mark.parametrize(
    ("name", "everywhere"),
    cases([(name, False) for name in ("USR1", "USR2", "HUP", "TERM", "INT")], quick=1)
    + cases([(name, True) for name in ("USR1", "USR2", "HUP")], quick=1),
)
def test_a_program_gets_each_signal_once(cluster: Cluster, name: str, everywhere: bool) -> None:
    """Be it sent to the task alone or to all processes: and the recording ends, so that the report is there.

    A SIGTERM or SIGINT to all processes would end nsys: the job script asks for SIGUSR1.
    """
    task = start_ready(cluster, TRAPS.format(name))
    cluster.signal_step(getattr(signal, f"SIG{name}"), everywhere=everywhere)
    while not cluster.of_rank(0):
        assert task.poll() is None, "the report is written while the program goes on"
        time.sleep(0.02)
    code, output = finish(task)
    assert code == 5, output
    assert (cluster.work / "got").read_text() == f"got {name}\n"


def test_a_program_that_ignores_a_sigterm_is_killed(cluster: Cluster) -> None:
    """With all that it has started, so that a job has time for the summary."""
    task = start_ready(cluster, "trap '' TERM; sleep 100 & echo $! >child; touch ready; wait; sleep 100")
    task.send_signal(signal.SIGTERM)
    code, output = finish(task)
    assert code == 143, output
    assert cluster.of_rank(0) == RANKS[0].read_bytes()
    stat = Path(f"/proc/{(cluster.work / 'child').read_text().strip()}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_the_program_goes_on_without_a_killed_nsys(cluster: Cluster) -> None:
    cluster.behave(lost=True)
    code, output = finish(cluster.rank("run-rank", "--", "sh", "-c", "sleep 1.5; touch finished"))
    assert code == 137 and (cluster.work / "finished").exists()
    assert "no report of rank 0: nsys was killed by signal SIGKILL" in output


def test_an_nsys_that_refuses_an_option(cluster: Cluster) -> None:
    cluster.behave(refuses=["--bad"])
    code, output = finish(cluster.rank("run-rank", "--nsys=--bad=1", "--", "touch", "started"))
    assert code == 1 and "Illegal --bad arguments" in output
    assert "no report of rank 0: nsys did not start the program; see its messages above" in output
    assert not (cluster.work / "started").exists()


def test_nothing_is_left(cluster: Cluster, tmp_path: Path) -> None:
    """Neither files, of which one has the environment, nor processes."""
    place = tmp_path / "tmp"
    place.mkdir()
    code, output = finish(cluster.rank("run-rank", "--", "ls", "-A", str(place), TMPDIR=str(place)))
    [own] = [line for line in output.splitlines() if line.startswith("nsys2prv-ng-")]
    assert code == 0 and list(place.iterdir()) == []
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if own.encode() in path.read_bytes()]
    assert left == []


# ---- record ----------------------------------------------------------------------------------------------------------


def test_record_prints_the_summary_and_keeps_the_exit_status(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, [SAMPLES / "single-graph.sqlite"], summaries=True)
    code, output = finish(cluster.rank("record", "-o", "out", "--", "sh", "-c", "exit 3", slurm=False))
    assert code == 3
    assert output.startswith(DEFAULT) and "the report is out/report.nsys-rep" in output
    assert run("summary", SAMPLES / "single-graph.sqlite").stdout in output


def test_record_without_a_report_has_no_summary(cluster: Cluster) -> None:
    code, output = finish(cluster.rank("record", "--delay", "9", "-o", "out", "--", "sh", "-c", "exit 3", slurm=False))
    assert code == 3 and "no report: the program ended before the recording began" in output
    assert "error:" not in output and list((cluster.work / "out").iterdir()) == []


# ---- the nsys of this machine ----------------------------------------------------------------------------------------


def test_with_the_nsys_of_this_machine(tmp_path: Path) -> None:
    """The recording ends before the program, which keeps its exit status; the captured variables hold no secret."""
    nsys = find_nsys()
    if nsys is None:
        pytest.skip("no nsys on this machine")
    program = "import sys, time; time.sleep(4); print('went on'); sys.exit(9)"
    words = ["flock", "--close", str(PROFILING), sys.executable, "-m", "nsys2prv_ng", "run-rank", "--duration", "1"]
    environment = {**os.environ, "NSYS_HOME": str(nsys.path.parents[1]), "MY_TOKEN": "hunter2swordfish", "RANK": "3"}
    done = subprocess.run(
        [*words, "-o", "out", "--", sys.executable, "-c", program],
        **{"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 120, "check": False},
    )
    assert done.returncode == 9, done.stderr
    assert "went on" in done.stdout
    report = tmp_path / "out/rank3.nsys-rep"
    export = report.with_suffix(".sqlite")
    subprocess.run([nsys.path, "export", "--type=sqlite", "-o", export, report], check=True, capture_output=True)
    with closing(sqlite3.connect(export)) as sql:
        held = " ".join(str(v) for (v,) in sql.execute("SELECT value FROM META_DATA_CAPTURE"))
        held += " ".join(str(v) for (v,) in sql.execute("SELECT value FROM TARGET_INFO_SYSTEM_ENV"))
        [(last,)] = sql.execute("SELECT max(end) FROM OSRT_API").fetchall()
    assert "RANK" in held and "hunter2swordfish" not in held
    assert last < 4e9
