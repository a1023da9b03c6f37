"""The Slurm script, run as a whole in an emulation of Slurm with the real command line."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nsys2prv_ng.bundled.job_script import ScriptOptions, choose_form, render_script
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.report.nsys import find_nsys
from tests.bundled.fake_slurm import Cluster
from tests.cli.program_runs import run
from tests.cli.test_program import assert_one_line
from tests.conftest import SAMPLES
from tests.tiers import cases
from tests.trace_reader import read_trace

RANKS = [SAMPLES / f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)]
WHOLE = ["--sources", "cuda_api,kernels", "-j", "1"]
OPTIONS = [*WHOLE, "--no-derived"]
"""With few sources, and without what is derived of them, which most jobs here do not look at."""

IMAGE = "nvcr.io#nvidia/pytorch:25.01-py3"
JOBS = {
    "default": ScriptOptions(),
    "all": ScriptOptions(
        command=["python", "my train.py", "--lr=$LR", "it's"],
        nodes=7,
        gpus_per_node=3,
        per_node=True,
        capture_range=True,
        node_metrics=True,
        nsys=["--trace=cuda,nvtx", "--python-sampling=true"],
        ranks="0-2,5",
        paraver=True,
        dask=True,
        container=IMAGE,
        venv="/a b/venv",
        modules=["cuda/12.6", "nsight systems"],
        sbatch=["--qos=debug", "-C gpu&nvme"],
        output="/scratch/my reports",
    ),
    "per node": ScriptOptions(per_node=True, delay=120, duration=30, dependent=True, paraver=True),
    "apptainer": ScriptOptions(container="/images/it's.sif", venv="/v"),
    "odd": ScriptOptions(command=["a\nb", "--", "*", '"', "\\n", "$(rm x)"]),
}
SRUN = """srun() { printf '%s\\0' "$@"; }; module() { :; }; source() { :; }; sbatch() { :; }; SLURM_JOB_ID=42
dask() { :; }; timeout() { :; }; apptainer() { :; }; exit() { builtin exit 0; }
"""
"""What stands in for the programs of the script but srun's, whose words are printed."""


def two_by_two(**changes: object) -> str:
    """Render the script for the job of the samples; it translates few sources."""
    words = {"command": ["sh", "-c", "exit 0"], "nodes": 2, "gpus_per_node": 2, **changes}
    text = render_script(ScriptOptions(**words))  # type: ignore[arg-type]
    return text.replace('"$REPORTS/stats.json"', f'"$REPORTS/stats.json" {shlex.join(OPTIONS)}')


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, RANKS)


# ---- the script as text ----------------------------------------------------------------------------------------------


def test_a_site_can_read_it() -> None:
    """At most 30 lines besides those that users ask for one by one, and Dask's; no mark is left."""
    for name, job in JOBS.items():
        text = render_script(job)
        assert not re.search("@[A-Z]+@", text), text
        asked = len(job.modules or ()) + len(job.sbatch or ()) + sum(word.count("\n") for word in job.command)
        assert len(text.splitlines()) <= 30 + asked + 7 * job.dask, name
    assert run("slurm").stdout == render_script(ScriptOptions())
    assert len((SAMPLES / "slurm.sh").read_text().splitlines()) <= 30


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_it_is_bash(job: ScriptOptions, tmp_path: Path) -> None:
    path = tmp_path / "slurm.sh"
    path.write_text(render_script(job))
    subprocess.run(["bash", "-n", path], check=True)
    if shutil.which("shellcheck") and not set("".join(job.command)) & set(
        "$"
    ):  # shellcheck warns of them in single quotes
        subprocess.run(["shellcheck", "--severity=warning", path], check=True)


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_bash_reads_the_values_that_were_given(job: ScriptOptions, tmp_path: Path) -> None:
    """What bash makes of the words of srun."""
    done = subprocess.run(
        ["bash", "-c", SRUN + render_script(job)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    words = done.stdout.split("\0")
    first = next(at for at, word in enumerate(words) if word.startswith("--kill-on-bad-exit"))
    words = words[first - 1 :]
    assert words[:3] == [words[0], "--kill-on-bad-exit=0", "--wait=600"]
    at = words.index("run-rank")
    program = f"{job.venv}/bin/nsys2prv-ng" if job.venv else "nsys2prv-ng"
    before = {
        IMAGE: [f"--container-image={IMAGE}", f"--container-mounts={tmp_path}", f"--container-workdir={tmp_path}"],
        "/images/it's.sif": ["apptainer", "exec", "--nv", "/images/it's.sif"],
        "": [],
    }[job.container]
    assert words[3:at] == [*before, program]
    end = words.index("--")
    options = set(words[at + 1 : end])
    assert words[end - 2 : end] == ["--output", job.output or f"{tmp_path}/profile-42"]
    assert ("--set-ranks" in options) == (not job.per_node)
    assert ("--capture-range" in options) == job.capture_range and ("--node-metrics" in options) == job.node_metrics
    assert ("--delay=120" in options and "--duration=30" in options) == (job.delay == 120)
    assert ("--ranks=0,1,2,5" in options) == (job.ranks is not None)
    assert {f"--nsys={word}" for word in job.nsys or ()} == {word for word in options if word.startswith("--nsys")}
    command = job.command or (["torchrun"] if job.per_node else ["python", "train.py"])
    assert words[end + 1 :][: len(command)] == list(command)


def test_command_line() -> None:
    words = ["--nodes", "3", "--gpus-per-node", "8", "--per-node", "--capture-range", "--dask", "--venv", "/v"]
    words += ["--module", "a", "--module", "b", "--container", "c.sif", "--sbatch=--qos=debug", "--sbatch", "-x n1"]
    words += ["--ranks", "0-1", "--paraver"]
    job = ScriptOptions(
        command=["python", "x.py", "--nodes", "9"],
        nodes=3,
        gpus_per_node=8,
        per_node=True,
        capture_range=True,
        dask=True,
        container="c.sif",
        venv="/v",
        modules=["a", "b"],
        sbatch=["--qos=debug", "-x n1"],
        ranks=[0, 1],
        paraver=True,
    )
    done = run("slurm", *words, "--", *job.command)
    assert (done.returncode, done.stdout) == (0, render_script(job))
    assert run("slurm", *words, *job.command).stdout == render_script(job)
    assert "#SBATCH --ntasks-per-node=1\n" in done.stdout and "#SBATCH --cpus-per-task=64\n" in done.stdout
    assert "#SBATCH --qos=debug\n#SBATCH -x n1\n" in done.stdout
    assert run("slurm", "--nodes", "0").returncode == 2
    for profiled in (["nsys", "profile", "x"], ["nsys2prv-ng", "run-rank", "--", "x"]):
        assert "nsys would run within nsys" in assert_one_line(run("slurm", "--", *profiled), 2)


@pytest.mark.parametrize("word", ["qos=debug", "--qos=a\n#SBATCH -x", "-", "\x1b--x", ""])
def test_only_options_of_sbatch(word: str) -> None:
    with pytest.raises(UsageError, match="write an option of sbatch"):
        render_script(ScriptOptions(sbatch=[word]))


def test_the_template_of_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the marks that it needs; what is no mark stays, such as an address."""
    template = tmp_path / "site.sh"
    template.write_text("#!/bin/sh\n#SBATCH --gres=gpu:@GPUS@\n@SBATCH@\nmail me@SITE@x\n@RUN@ -- @COMMAND@\n@AFTER@\n")
    program = "nsys2prv-ng"
    lines = ["#!/bin/sh", "#SBATCH --gres=gpu:8", "mail me@SITE@x", f"{program} run-rank --set-ranks -- ./a b"]
    lines += [
        f'{program} summary "$REPORTS"/*.nsys-rep --quiet --save "$REPORTS/summary.json" --html "$REPORTS/summary.html"'
    ]
    expected = "\n".join(lines) + "\n"
    assert render_script(ScriptOptions(template=str(template), gpus_per_node=8, command=["./a", "b"])) == expected
    monkeypatch.setenv("NSYS2PRV_NG_JOB_TEMPLATE", str(template))
    assert run("slurm", "--gpus-per-node", "8", "./a", "b").stdout == expected
    line = assert_one_line(run("slurm", "--template", tmp_path / "none"), 2)
    assert line.endswith("none: cannot be read: No such file or directory")
    template.write_text("@RUN@\n")
    assert "has no @RUN@ or no @COMMAND@" in assert_one_line(run("slurm"), 2)


@pytest.mark.parametrize("limit", ["30", "10:30", "00:30:00", "1-12", "1-12:30", "UNLIMITED"])
def test_time_limits_of_slurm(limit: str) -> None:
    assert f"#SBATCH --time={limit}\n" in render_script(ScriptOptions(time_limit=limit))


@pytest.mark.parametrize("limit", ["foo", "1:2:3:4", "30m", "1-", "-1:00"])
def test_other_time_limits_are_refused(limit: str) -> None:
    line = assert_one_line(run("slurm", f"--time-limit={limit}"), 2)
    assert line.endswith(f"--time-limit {limit}: write HH:MM:SS, days-HH:MM:SS, or minutes")


@pytest.mark.parametrize("before", ["uv run", "uv run --with x", "poetry run", "conda run -n env", "env A=1 uv run"])
def test_a_launcher_behind_a_runner(before: str) -> None:
    job, note = choose_form(ScriptOptions(command=[*before.split(), "torchrun", "x.py"]))
    assert job.per_node and note.startswith("torchrun starts the ranks of its node")
    assert f"    -- {before} torchrun --nnodes=" in render_script(job)


TORCHRUN = ["torchrun", "--nnodes=2", "--nproc-per-node=4"]
MEETING = ["--rdzv-backend=c10d", "--rdzv-endpoint=first:20007", "--rdzv-id=7"]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("torchrun a.py", ["torchrun", "--nnodes=2", "--nproc-per-node=4", *MEETING, "a.py"]),
        (
            "/b/torchrun --nproc_per_node 8 a.py",
            ["/b/torchrun", "--nnodes=2", *MEETING, "--nproc_per_node", "8", "a.py"],
        ),
        (
            "torchrun --master_addr=x --node-rank=1 a.py",
            ["torchrun", "--nnodes=2", "--nproc-per-node=4", "--master_addr=x", "--node-rank=1", "a.py"],
        ),
        (
            "torchrun --rdzv_endpoint=h:1 a.py --node-rank=3",
            [*TORCHRUN, MEETING[0], MEETING[2], "--rdzv_endpoint=h:1", "a.py", "--node-rank=3"],
        ),
        ("torchrun -m a --nnodes 9", [*TORCHRUN, *MEETING, "-m", "a", "--nnodes", "9"]),
        ("torchrun --standalone a.py", ["torchrun", "--nproc-per-node=4", "--standalone", "a.py"]),
        (
            "python3 -u -m torch.distributed.run a.py -m b",
            ["python3", "-u", "-m", "torch.distributed.run", *TORCHRUN[1:], *MEETING, "a.py", "-m", "b"],
        ),
        (
            "env A=1 B_2= torchrun --nnodes=2 a.py",
            ["env", "A=1", "B_2=", "torchrun", "--nproc-per-node=4", *MEETING, "--nnodes=2", "a.py"],
        ),
        ("python -m accelerate.commands.launch a.py", ["python", "-m", "accelerate.commands.launch", "a.py"]),
        ("accelerate launch $HOME/a.py", ["accelerate", "launch", "$HOME/a.py"]),
        ("deepspeed a.py", ["deepspeed", "a.py"]),
    ],
)
def test_launchers_of_a_node_run_once_per_node(typed: str, words: list[str]) -> None:
    """What bash makes of the command, where Slurm has set its variables."""
    job, note = choose_form(ScriptOptions(command=typed.split()))
    launcher = next(name for name in ("torchrun", "accelerate", "deepspeed", "torch.distributed") if name in typed)
    launcher = launcher.replace("torch.distributed", "torchrun")
    assert note.startswith(f"{launcher} starts the ranks of its node: the script runs one task per node")
    assert ("use torchrun" in note) == (launcher != "torchrun")
    text = render_script(job)
    assert "#SBATCH --ntasks-per-node=1\n" in text and "--set-ranks" not in text
    slurm = {"SLURM_NNODES": "2", "SLURM_JOB_ID": "7", "MASTER_ADDR": "first", "PATH": os.environ["PATH"]}
    script = SRUN.replace("SLURM_JOB_ID=42", "") + text.replace("nsys2prv-ng summary", "true")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=slurm)
    printed = done.stdout.split("\0")[:-1]
    assert printed[printed.index("--") + 1 :] == words
    assert choose_form(job) == (job, ""), "nothing to say of what was chosen"


@pytest.mark.parametrize(
    "typed",
    ["python a.py -m torch.distributed.run", "python -m a", "python -c -m", "env", "env A=1", "env A=1 ./torchrun.sh"],
)
def test_what_is_no_launcher_runs_once_per_rank(typed: str) -> None:
    job = ScriptOptions(command=typed.split())
    assert choose_form(job) == (job, "")
    assert f" \\\n    -- {shlex.join(typed.split())}\nstatus=$?\n" in render_script(job)


@pytest.mark.parametrize("launcher", ["srun", "mpirun", "/usr/bin/mpiexec"])
def test_launchers_of_all_nodes_are_refused(launcher: str) -> None:
    line = assert_one_line(run("slurm", "--", launcher, "-n", "8", "./a.out"), 2)
    assert f"{Path(launcher).name} would start all ranks in each of 8 tasks" in line
    for job in (ScriptOptions(nodes=1, per_node=True), ScriptOptions(nodes=1, gpus_per_node=1)):
        alone = replace(job, command=[launcher, "./a.out"])
        assert choose_form(alone) == (alone, ""), "one task may start all"


def test_account_partition_and_time_limit() -> None:
    job = ScriptOptions(account="proj-1", partition="gpu,long", time_limit="2-00")
    text = render_script(job)
    assert run("slurm", "--account", "proj-1", "--partition", "gpu,long", "--time-limit", "2-00").stdout == text
    changed = set(text.splitlines()) ^ set(render_script(ScriptOptions()).splitlines())
    own = {"#SBATCH --account=proj-1", "#SBATCH --partition=gpu,long", "#SBATCH --time=2-00"}
    assert changed == own | {"#SBATCH --time=00:30:00"}
    head = text[: text.index("\n\n")].splitlines()
    assert own <= set(head), "sbatch reads no option behind the first command"
    for wrong in ("", "a b", "a\n#SBATCH --wrap=x", "a#b", "'a'", "\x1b[0m"):
        with pytest.raises(UsageError, match="must be one word"):
            render_script(ScriptOptions(time_limit=wrong))


# ---- whole jobs ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_whole_job(tmp_path: Path) -> None:
    """A report for each rank, the summary in the log and in files, and the trace, as without any script."""
    cluster = Cluster(tmp_path, RANKS, summaries=True)
    code, output = cluster.run(two_by_two(paraver=True, node_metrics=True))
    assert code == 0, output
    calls = cluster.profiled()
    assert [call["rank"] for call in calls] == ["0", "1", "2", "3"]
    for rank, call in enumerate(calls):
        assert call["program"] == ["sh", "-c", "exit 0"]
        assert ("--gpu-metrics-devices" in call["options"]) == (rank in (0, 2))
        assert (call["seen"]["RANK"], call["seen"]["LOCAL_RANK"]) == (str(rank), str(rank % 2))
        assert call["seen"]["WORLD_SIZE"] == "4"
        assert cluster.of_rank(rank) == RANKS[rank].read_bytes()
    assert output.count("recording the first 60 s of the program") == 1
    left = {path.name for path in cluster.reports.iterdir() if path.suffix not in (".sqlite", ".nsys-rep")}
    assert left == {"trace.prv", "trace.pcf", "trace.row", "stats.json", "summary.json", "summary.html"}
    alone = run("summary", *RANKS, "--save", tmp_path / "alone.json", "--html", cluster.reports / "summary.html")
    assert alone.stdout in output and output.index(alone.stdout) < output.index("Paraver loads it")
    assert (cluster.reports / "summary.json").read_bytes() == (tmp_path / "alone.json").read_bytes()
    done = run(*RANKS, tmp_path / "trace.prv", *OPTIONS)
    assert done.returncode == 0
    assert cluster.trace() == {path.name: path.read_bytes() for path in tmp_path.glob("trace.*")}


class Job(NamedTuple):
    """A job: what is asked for, how nsys behaves, how it ends, of which ranks there is a report, and what it prints."""

    options: dict[str, Any]
    code: int = 0
    ranks: tuple[int, ...] = (0, 1, 2, 3)
    says: tuple[str, ...] = ()
    nsys: dict[str, Any] = {}  # noqa: RUF012 (does not change)


FAILS = ["sh", "-c", "test $RANK != 1 || exit 9"]
ENDED = {
    "rank 1 fails": Job({"command": FAILS}, 9),
    "rank 1 fails, nsys of rank 2 is killed": Job(
        {"command": ["sh", "-c", "sleep 1; test $RANK != 1 || exit 9"]},
        code=128 + 9,  # of the nsys that was killed: srun returns the highest code
        ranks=(0, 1, 3),
        says=("no report of rank 2: nsys was killed by signal SIGKILL",),
        nsys={"of_ranks": {"2": {"lost": True}}},
    ),
    "rank 1 is killed": Job({"command": ["sh", "-c", "test $RANK != 1 || kill -KILL $$"]}, 137),
    "a container that alone has nsys": Job({"container": IMAGE}, nsys={"container": IMAGE}),
    "a file as container": Job({"container": "/images/my image.sif"}, nsys={"container": "/images/my image.sif"}),
    "no job can be submitted": Job({"dependent": True}, says=("sbatch: error: not from here",)),
    "a report per node": Job({"per_node": True, "command": ["true", "x"]}, ranks=(0, 1)),
    "some ranks": Job({"ranks": "1-2"}, ranks=(1, 2)),
    "a program that ends before the recording": Job(
        {"delay": 50, "command": FAILS}, 9, (), ("no report of rank 3: the program ended before the recording began",)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(ENDED, push=3))
def test_how_jobs_end(cluster: Cluster, name: str) -> None:
    job = ENDED[name]
    cluster.behave(**job.nsys)
    if "dependent" in job.options:
        (cluster.folder / "no-sbatch").touch()
    code, output = cluster.run(two_by_two(**job.options))
    assert code == job.code, output
    assert [rank for rank in range(4) if cluster.of_rank(rank) == RANKS[rank].read_bytes()] == list(job.ranks), output
    assert [text for text in job.says if text not in output] == [], output
    assert (cluster.folder / "summarized").read_text() == "summary\n", "once, however the job ends"


@pytest.mark.slow
@pytest.mark.parametrize("everywhere", cases([False, True], push=1))
@pytest.mark.parametrize(
    ("duration", "command", "awaited", "code"),
    cases(
        [
            (None, "touch started-$RANK; exec sleep 100", "work/started-*", 143),
            (1, "touch started-$RANK; exec sleep 100", "work/profile-42/*.nsys-rep", 143),
            (
                None,
                "trap 'sleep 0.5; exit 6' USR1; touch started-$RANK; while :; do sleep 0.1; done",
                "work/started-*",
                6,
            ),
        ],
        push=1,
    ),
)
def test_the_time_limit(
    cluster: Cluster, duration: int | None, command: str, awaited: str, code: int, everywhere: bool
) -> None:
    """Slurm signals the tasks, as --signal asks, or all processes: of SIGUSR1 a program dies, but nsys does not."""
    text = two_by_two(duration=duration, command=["sh", "-c", command])
    assert "\n#SBATCH --signal=USR1@120\n" in text
    job = cluster.start(text)
    while len(list(cluster.folder.parent.glob(awaited))) < 4:
        assert job.poll() is None
        time.sleep(0.05)
    time.sleep(0.3)
    cluster.signal_step(signal.SIGUSR1, everywhere=everywhere)
    output = job.communicate(timeout=300)[0]
    assert job.returncode == (138 if everywhere and code == 143 else code), output
    assert [cluster.of_rank(rank) for rank in range(4)] == [path.read_bytes() for path in RANKS]
    assert (cluster.folder / "summarized").read_text() == "summary\n"


@pytest.mark.slow
def test_a_dependent_job(cluster: Cluster) -> None:
    """It summarizes and translates, even if the first job is killed."""
    command = ["sh", "-c", "test $RANK = 1 || test $RANK = 2 || sleep 100"]
    job = cluster.start(two_by_two(dependent=True, paraver=True, command=command))
    while len(list(cluster.reports.glob("*.nsys-rep"))) < 2:
        assert job.poll() is None
        time.sleep(0.05)
    job.kill()
    cluster.end_step()
    job.wait(60)
    [queued] = cluster.queued()
    assert {"--dependency=afterany:42", "--account=mine", "--nodes=1", "--ntasks=1"} <= set(queued["options"])
    code, output = cluster.run_queued()
    assert code == 0, output
    assert (cluster.folder / "summarized").read_text() == "summary\n"
    assert set(cluster.trace()) == {"trace.prv", "trace.pcf", "trace.row"}
    assert "no report of ranks 0, 3 of 4" in output
    assert "--dependent: cannot be combined with --dask" in assert_one_line(run("slurm", "--dependent", "--dask"), 2)


@pytest.mark.slow
def test_workers_of_dask(cluster: Cluster) -> None:
    """One step for those of all nodes, after that of the program."""
    pytest.importorskip("distributed", reason="needs the extra cluster")
    cluster.offer(cluster.bin / "dask", f'exec "{sys.executable}" -m dask "$@"')
    text = two_by_two(dask=True, paraver=True)
    assert text.count("--nworkers 8") == 1
    code, output = cluster.run(text.replace("--nworkers 8", "--nworkers 1").replace("=8", "=1"))
    assert code == 0, output
    steps = [json.loads(line) for line in (cluster.folder / "srun.jsonl").read_text().splitlines()]
    assert [step[1][:2] for step in steps] == [["nsys2prv-ng", "run-rank"], ["dask", "worker"]]
    assert steps[1][0] == {"--overlap": "", "--nodes": "2", "--ntasks": "2", "--cpus-per-task": "1"}
    assert (cluster.reports / "dask.log").read_text().count("Start worker at") == 2
    assert set(cluster.trace()) == {"trace.prv", "trace.pcf", "trace.row"}


@pytest.mark.slow
def test_module_and_environment(cluster: Cluster, tmp_path: Path) -> None:
    """nsys comes with the module, nsys2prv-ng with the environment."""
    module, venv = tmp_path / "module", tmp_path / "my venv"
    module.mkdir()
    (venv / "bin").mkdir(parents=True)
    (cluster.bin / "nsys").rename(module / "nsys")
    (cluster.bin / "nsys2prv-ng").rename(venv / "bin" / "nsys2prv-ng")
    (venv / "bin" / "activate").write_text(f'PATH="{venv}/bin:$PATH"\n')
    function = f'() {{ [ "$*" = "load nsys/2025" ] && PATH="{module}:$PATH"; }}'
    text = two_by_two(modules=["nsys/2025"], venv=str(venv))
    code, output = cluster.run(text, **{"BASH_FUNC_module%%": function})
    assert code == 0, output
    assert cluster.of_rank(3) == RANKS[3].read_bytes()


def test_outside_of_a_job_nothing_starts(cluster: Cluster) -> None:
    code, output = cluster.run(two_by_two(), SLURM_JOB_ID="")
    assert code != 0 and "submit this script with sbatch" in output
    assert not (cluster.folder / "srun.jsonl").exists()


# ---- the nsys of this machine ----------------------------------------------------------------------------------------


def test_with_the_nsys_of_this_machine(tmp_path: Path) -> None:
    """One of two ranks fails: the job ends with its exit code and is translated."""
    nsys = find_nsys()
    if nsys is None:
        pytest.skip("no nsys on this machine")
    program = "import os, sys, time; time.sleep(0.3); sys.exit(int(os.environ['RANK']) * 5)"
    command = [sys.executable, "-c", program]
    text = render_script(ScriptOptions(command=command, nodes=2, gpus_per_node=1, paraver=True, node_metrics=True))
    for attempt in range(3):  # nsys sometimes loses what a program did
        (tmp_path / str(attempt)).mkdir()
        cluster = Cluster(tmp_path / str(attempt), [], real_nsys=nsys.path, summaries=True)
        code, output = cluster.run(text, TMPDIR=os.environ.get("TMPDIR", "/tmp"))
        assert code == 5, output
        if not Path("/dev/nvidia0").exists():
            assert output.count("recording without --gpu-metrics-devices=all") == 2
        tasks = read_trace(cluster.reports / "trace.prv").names["TASK"]
        if tasks == ["rank 0", "rank 1"]:
            break
    assert tasks == ["rank 0", "rank 1"]
