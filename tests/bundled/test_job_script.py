"""The Slurm script, run as a whole in an emulation of Slurm with the real command line."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
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
        dependent=True,
        dask=True,
        container=IMAGE,
        venv="/a b/venv",
        modules=["cuda/12.6", "nsight systems"],
    ),
    "per node": ScriptOptions(per_node=True, delay=120, duration=30),
    "apptainer": ScriptOptions(container="/images/it's.sif"),
    "odd": ScriptOptions(command=["a\nb", "--", "*", '"', "\\n", "$(rm x)"]),
}


def two_by_two(**changes: object) -> str:
    """Render the script for the job of the samples; it translates few sources."""
    words = {"command": ["sh", "-c", "exit 0"], "nodes": 2, "gpus_per_node": 2, **changes}
    text = render_script(ScriptOptions(**words))  # type: ignore[arg-type]
    assert text.count("\nTRANSLATE_OPTIONS=()\n") == 1
    return text.replace("\nTRANSLATE_OPTIONS=()\n", f"\nTRANSLATE_OPTIONS=({shlex.join(OPTIONS)})\n")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, RANKS)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory):
    """The trace of some ranks' samples, translated without any script."""
    made: dict[tuple[int, ...], dict[str, bytes]] = {}

    def trace(*ranks: int, options: Sequence[str] = OPTIONS) -> dict[str, bytes]:
        key = *ranks, len(options)
        if key not in made:
            folder = tmp_path_factory.mktemp("expected")
            done = run(*(RANKS[rank] for rank in ranks), folder / "trace.prv", *options)
            assert done.returncode == 0, done.stderr
            made[key] = {path.name: path.read_bytes() for path in folder.iterdir()}
        return made[key]

    return trace


# ---- the script as text ----------------------------------------------------------------------------------------------


def test_the_sample_is_what_is_printed() -> None:
    assert (SAMPLES / "slurm.sh").read_text() == run("slurm").stdout == render_script(ScriptOptions())


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_it_is_bash(job: ScriptOptions, tmp_path: Path) -> None:
    path = tmp_path / "slurm.sh"
    path.write_text(render_script(job))
    subprocess.run(["bash", "-n", path], check=True)
    if shutil.which("shellcheck") and not set("".join(job.command)) & set(
        "$"
    ):  # shellcheck warns of them in single quotes
        subprocess.run(["shellcheck", path], check=True)


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_bash_reads_the_values_that_were_given(job: ScriptOptions, tmp_path: Path) -> None:
    text = render_script(job)
    settings = text[: text.index("# ==== Each task =")]
    show = 'printf "%s\\0" "$VENV" "$CAPTURE_RANGE" "$REPORT_PER" "$DEPENDENT" "$DASK" "$DELAY" "$DURATION"'
    show += ' "${#MODULES[@]}" "${MODULES[@]}"'
    show += ' "${SRUN_OPTIONS[*]}" "${PREFIX[*]}" "${COMMAND[@]}"'
    done = subprocess.run(["bash", "-c", settings + show], capture_output=True, text=True, check=True, cwd=tmp_path)
    values = done.stdout.split("\0")[:-1]
    container = f"--container-image={job.container} --container-mounts={tmp_path} --container-workdir={tmp_path}"
    is_file = job.container.endswith(".sif")
    modules = list(job.modules or ())
    assert values[:8] == [
        job.venv,
        "yes" if job.capture_range else "no",
        "node" if job.per_node else "rank",
        "yes" if job.dependent else "no",
        "yes" if job.dask else "no",
        str(job.delay or ""),
        str(job.duration or ""),
        str(len(modules)),
    ]
    assert values[8 : 8 + len(modules)] == modules
    rest = values[8 + len(modules) :]
    assert rest[0] == (container if job.container and not is_file else "")
    assert rest[1] == (f"apptainer exec --nv {job.container}" if is_file else "")
    if job.command:
        assert rest[2:] == list(job.command)
    else:
        assert rest[2] == ("torchrun" if job.per_node else "python")


def test_command_line() -> None:
    words = ["--nodes", "3", "--gpus-per-node", "8", "--per-node", "--capture-range", "--dependent", "--dask"]
    words += ["--venv", "/v"]
    words += ["--module", "a", "--module", "b", "--container", "c.sif"]
    job = ScriptOptions(
        command=["python", "x.py", "--nodes", "9"],
        nodes=3,
        gpus_per_node=8,
        per_node=True,
        capture_range=True,
        dependent=True,
        dask=True,
        container="c.sif",
        venv="/v",
        modules=["a", "b"],
    )
    done = run("slurm", *words, "--", *job.command)
    assert (done.returncode, done.stdout) == (0, render_script(job))
    assert run("slurm", *words, *job.command).stdout == render_script(job)
    assert "#SBATCH --ntasks-per-node=1\n" in done.stdout and "#SBATCH --cpus-per-task=64\n" in done.stdout
    assert run("slurm", "--nodes", "0").returncode == 2
    assert "nsys would run within nsys" in assert_one_line(run("slurm", "--", "nsys", "profile", "x"), 2)


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
    assert f"COMMAND=({before} torchrun --nnodes=" in render_script(job)


def test_delay_and_duration() -> None:
    text = render_script(ScriptOptions(delay=0, duration=30))
    assert run("slurm", "--delay", "0", "--duration", "30").stdout == text
    changed = set(text.splitlines()) ^ set(render_script(ScriptOptions()).splitlines())
    assert changed == {"DELAY=", "DELAY=0", "DURATION=", "DURATION=30"}
    for name in ("delay", "duration"):
        line = assert_one_line(run("slurm", "--capture-range", f"--{name}", "5"), 2)
        assert line.endswith(f"--{name} 5: cannot be combined with --capture-range")
    assert "--duration 0: must be at least 1" in run("slurm", "--duration", "0").stderr


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
    assert "#SBATCH --ntasks-per-node=1\n" in text and "\nREPORT_PER=node\n" in text
    settings = text[: text.index("# ==== Each task =")] + 'printf "%s\\0" "${COMMAND[@]}"'
    slurm = {"SLURM_NNODES": "2", "SLURM_JOB_ID": "7", "MASTER_ADDR": "first", "PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", "-c", settings], capture_output=True, text=True, check=True, env=slurm)
    assert done.stdout.split("\0")[:-1] == words
    assert choose_form(job) == (job, ""), "nothing to say of what was chosen"


@pytest.mark.parametrize(
    "typed",
    ["python a.py -m torch.distributed.run", "python -m a", "python -c -m", "env", "env A=1", "env A=1 ./torchrun.sh"],
)
def test_what_is_no_launcher_runs_once_per_rank(typed: str) -> None:
    job = ScriptOptions(command=typed.split())
    assert choose_form(job) == (job, "")
    assert f"\nCOMMAND=({shlex.join(typed.split())})\n" in render_script(job)


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


@pytest.mark.parametrize(
    ("wanted", "refused", "used"),
    [("lf", "true", "lf"), ("lf", "lf", "true"), ("true", "true", "lf"), ("hf", "", "hf")],
)
def test_network_metrics_are_what_nsys_accepts(wanted: str, refused: str, used: str, cluster: Cluster) -> None:
    """Since nsys 2026.2, `true` is called `lf`, and it has `hf`."""
    cluster.behave(refuses=["--gpu-metrics-devices", "--gpu-metrics-device", f"--nic-metrics={refused}"])
    default = "PROFILE_OF_NODE=(--gpu-metrics-devices=all --nic-metrics=lf)"
    text = two_by_two()
    assert text.count(default) == 1
    code, output = cluster.run(text.replace(default, default.replace("=lf", f"={wanted}")))
    assert code == 0 and "profiling without --nic-metrics" not in output, output
    chosen = [call["options"].get("--nic-metrics") for call in cluster.profiled()]
    assert chosen == [used, None, used, None]


@pytest.mark.slow
def test_a_report_for_each_rank(tmp_path: Path, expected) -> None:
    cluster = Cluster(tmp_path, RANKS, summaries=True)
    cluster.behave(refuses=["--gpu-metrics-devices", "--nic-metrics=lf"])  # an older nsys
    code, output = cluster.run(two_by_two().replace(" --no-derived", ""))
    assert code == 0, output
    assert cluster.trace() == {**expected(0, 1, 2, 3, options=WHOLE)}
    assert "profiling without" not in output
    calls = cluster.profiled()
    assert [call["rank"] for call in calls] == ["0", "1", "2", "3"]
    for rank, call in enumerate(calls):
        assert call["options"]["--output"] == f"{cluster.reports}/profile_%q{{SLURM_PROCID}}"
        assert call["options"]["--trace"] == "cuda,nvtx,osrt,mpi"
        assert call["options"]["--kill"] == "none" and call["options"]["--force-overwrite"] == "true"
        assert not any(name.startswith("--capture-range") for name in call["options"])
        assert call["program"] == ["sh", "-c", "exit 0"]
        metrics = {name for name in call["options"] if "metrics" in name}
        assert metrics == ({"--gpu-metrics-device", "--nic-metrics"} if rank in (0, 2) else set())
        assert call["options"].get("--nic-metrics") == ("true" if rank in (0, 2) else None)
        assert (call["seen"]["RANK"], call["seen"]["LOCAL_RANK"]) == (str(rank), str(rank % 2))
        assert call["seen"]["WORLD_SIZE"] == "4" and call["seen"]["MASTER_ADDR"]
    left = {path.name for path in cluster.reports.iterdir() if path.suffix not in (".sqlite", ".nsys-rep")}
    assert left == {"trace.prv", "trace.pcf", "trace.row", "stats.json", "summary.json", "summary.html"}
    # The same numbers as of a summary of the same reports without any script, in the log and in the file.
    alone = run("summary", *RANKS, "--save", tmp_path / "alone.json")
    assert alone.stdout in output and output.index(alone.stdout) > output.index("Paraver loads it")
    assert (cluster.reports / "summary.json").read_bytes() == (tmp_path / "alone.json").read_bytes()


RECORDED = "until test -e profile-42/profile_$RANK.nsys-rep; do sleep 0.1; done; sleep 1.5"
"""What a program does until some time after nsys has written the report, and has ended."""
FAILS = ["sh", "-c", "test $RANK != 1 || exit 9"]


class Job(NamedTuple):
    """A job: what is asked for, how nsys behaves, how it ends, of which ranks there is a trace, and what it prints."""

    options: dict[str, Any]
    code: int = 0
    ranks: tuple[int, ...] = (0, 1, 2, 3)
    says: tuple[str, ...] = ()
    nsys: dict[str, Any] = {}  # noqa: RUF012 (does not change)
    prepare: Callable[[Cluster], object] = lambda _: None


def _break_summary(cluster: Cluster) -> None:
    program = (cluster.bin / "nsys2prv-ng").read_text()
    cluster.offer(cluster.bin / "nsys2prv-ng", program.split("\n", 1)[1].replace("then exit;", "then exit 1;"))


def _offer_dask(cluster: Cluster) -> None:
    pytest.importorskip("distributed", reason="needs the extra cluster")
    cluster.offer(cluster.bin / "dask", f'exec "{sys.executable}" -m dask "$@"')


NO_METRICS = {"refuses": ["--gpu-metrics-devices", "--gpu-metrics-device"]}
KILLED = f"{RECORDED}; case $RANK in 1) kill -KILL $$ ;; 2) kill -KILL $PPID ;; esac"
ENDED = {
    "rank 1 fails, nsys of rank 2 is killed, report 3 is cut off": Job(
        {"command": FAILS},
        code=128 + 9,  # of the nsys that was killed: srun returns the highest code
        ranks=(0, 1),
        says=(
            *("srun ended with exit code 137", "warning: skipped, as it cannot be read:", "profile_3"),
            "warning: no report of ranks 2-3 of 4 (by RANK)",
        ),
        nsys={"of_ranks": {"2": {"lost": True}, "3": {"size": 5000}}},
    ),
    "a container that alone has nsys": Job({"container": IMAGE}, nsys={"container": IMAGE}),
    "a file as container": Job({"container": "/images/my image.sif"}, nsys={"container": "/images/my image.sif"}),
    "no report": Job({}, 1, (), ("no report in",), nsys={"lost": True}),
    "summary fails": Job({}, says=("profile: no summary; the trace is complete",), prepare=_break_summary),
    "workers of dask": Job({"dask": True}, prepare=_offer_dask),
    "no dask": Job({"dask": True}, says=("dask not found: translating on this node alone",)),
    "metrics are refused": Job(
        {"delay": 5, "duration": 2}, says=("profiling without --gpu-metrics-devices=all: Illegal",), nsys=NO_METRICS
    ),
    "a report per node": Job({"per_node": True, "capture_range": True, "command": ["true", "x"]}, ranks=(0, 2)),
    "a program that ends before the duration": Job(
        {"duration": 1000, "command": FAILS}, 128 + 9, (0, 1, 3), nsys={"of_ranks": {"2": {"lost": True}}}
    ),
    # Of rank 1 the program, of rank 2 also what would write down its exit code.
    "killed after the duration": Job({"duration": 1, "command": ["sh", "-c", KILLED]}, 137),
    "no duration": Job(
        {"duration": 1, "command": ["touch", "started"]},
        *(1, (), ("srun ended with exit code 1", "no report in")),
        nsys={"refuses": ["--duration"]},
    ),
    "no job can be submitted": Job(
        {"dependent": True},
        says=("translating in this one",),
        prepare=lambda cluster: (cluster.folder / "no-sbatch").touch(),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(ENDED, push=2))
def test_how_jobs_end(cluster: Cluster, expected, name: str) -> None:
    job = ENDED[name]
    cluster.behave(**job.nsys)
    if "per_node" in job.options:
        cluster.behave(samples=[str(RANKS[0]), str(RANKS[2])])
    job.prepare(cluster)
    code, output = cluster.run(two_by_two(**job.options).replace("\nDASK_WORKERS=8\n", "\nDASK_WORKERS=1\n"))
    assert code == job.code, output
    assert cluster.trace() == (expected(*job.ranks) if job.ranks else {})
    assert [text for text in job.says if text not in output] == [], output
    assert not list(cluster.reports.glob("summary.*")), "there is no half of one"
    assert not (cluster.work / "started").exists()
    if "container" in job.options:
        assert set((cluster.folder / "exported-in").read_text().splitlines()) == {job.options["container"]}
    check_calls(cluster, job)


def check_calls(cluster: Cluster, job: Job) -> None:
    """Compare the options of `nsys profile`, and the steps of workers."""
    calls = cluster.profiled()
    metrics = [[name for name in call["options"] if "metrics" in name] for call in calls]
    if job.nsys is NO_METRICS:
        assert metrics == [["--nic-metrics"] if rank in (0, 2) else [] for rank in range(4)]
        parts = [tuple(call["options"][name] for name in ("--delay", "--duration", "--kill")) for call in calls]
        assert set(parts) == {("5", "2", "none")}
    if "per_node" in job.options:
        ranges = [(call["options"]["--capture-range"], call["options"]["--capture-range-end"]) for call in calls]
        assert ranges == [("cudaProfilerApi", "stop")] * 2
        assert [call["seen"]["RANK"] for call in calls] == [None] * 2
        assert all("--gpu-metrics-devices" in names for names in metrics)
    if job.prepare is _offer_dask:  # one step for those of all nodes, after the program's
        steps = [json.loads(line) for line in (cluster.folder / "srun.jsonl").read_text().splitlines()]
        assert [step[1][0] for step in steps] == ["bash", "dask"]
        assert steps[1][0] == {"--overlap": "", "--nodes": "2", "--ntasks": "2", "--cpus-per-task": "1"}
        assert (cluster.reports / "dask.log").read_text().count("Start worker at") == 2
        assert not list(cluster.reports.glob("*.parts"))


@pytest.mark.slow
@pytest.mark.all_sets
def test_the_program_continues_after_the_duration(cluster: Cluster, expected) -> None:
    words = ["a b", "it's", "", '"$x"', "\\n", "--", "*"]
    program = f'{RECORDED}; printf "%s\\0" "$@" >finished-$RANK; exit $((RANK * 2))'
    code, output = cluster.run(two_by_two(duration=1, command=["sh", "-c", program, "sh", *words]), SHELLOPTS="nounset")
    assert code == 6 and "srun ended with exit code 6" in output, output
    for rank in range(4):
        assert (cluster.work / f"finished-{rank}").read_text().split("\0")[:-1] == words
    assert cluster.trace() == expected(0, 1, 2, 3)


def wait_for(job: subprocess.Popen[str], folder: Path, pattern: str) -> None:
    """Wait until a running job has written files for all ranks."""
    while len(list(folder.glob(pattern))) < 4:
        assert job.poll() is None
        time.sleep(0.05)


STARTED = ["sh", "-c", "touch started-$RANK; exec sleep 100"]
IGNORES = ["sh", "-c", "trap '' TERM; touch started-$RANK; sleep 100"]


REPORTED = "work/profile-42/*.nsys-rep"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("duration", "command", "awaited", "alone"),
    cases(
        [
            (None, STARTED, "work/started-*", False),
            (1000, STARTED, "work/started-*", True),
            (1, STARTED, REPORTED, True),
            (1000, STARTED, "work/started-*", False),
            (1, STARTED, REPORTED, False),
            (1, IGNORES, REPORTED, True),
        ],
        push=2,
    ),
)
def test_the_time_limit(
    cluster: Cluster, expected, duration: int | None, command: list[str], awaited: str, alone: bool
) -> None:
    """The batch script is signalled, as by --signal=B:TERM, before, during and after what is profiled.

    Slurm signals tasks alone or all processes; each nsys gets one signal. A program that goes on must not prevent the
    translation.
    """
    if alone:
        (cluster.folder / "signals-tasks-alone").touch()
    text = two_by_two(duration=duration, command=command)
    assert text.count("\n    patience=60\n") == 1
    job = cluster.start(text.replace("    patience=60\n", "    patience=2\n"))
    wait_for(job, cluster.folder.parent, awaited)
    time.sleep(0.5)
    job.send_signal(signal.SIGTERM)
    output = job.communicate(timeout=300)[0]
    assert job.returncode == 143 and "the time limit is near" in output, output
    assert cluster.trace() == expected(0, 1, 2, 3)


@pytest.mark.all_sets
@pytest.mark.slow
def test_other_signals_reach_the_program_alone(cluster: Cluster) -> None:
    """A program that handles a signal, such as one to write a checkpoint, goes on after it."""
    program = f"trap 'touch asked-$RANK' USR1; {RECORDED}; touch ready-$RANK"
    program += "; until test -e asked-$RANK; do sleep 0.1; done; exit 5"
    job = cluster.start(two_by_two(duration=1, command=["sh", "-c", program]))
    wait_for(job, cluster.work, "ready-*")
    for pid in json.loads((cluster.folder / "step").read_text()):
        os.killpg(pid, signal.SIGUSR1)
    output = job.communicate(timeout=300)[0]
    assert job.returncode == 5, output


@pytest.mark.slow
def test_a_dependent_job(cluster: Cluster, expected) -> None:
    code, output = cluster.run(two_by_two(dependent=True), SLURM_CONF="/etc/slurm.conf")
    assert code == 0, output
    assert cluster.trace() == {}
    [queued] = cluster.queued()
    assert {"--dependency=afterany:42", "--account=mine", "--nodes=1", "--ntasks=1"} <= set(queued["options"])
    assert queued["told"] == ["SLURM_CONF"]
    code, output = cluster.run_queued()
    assert code == 0, output
    assert cluster.trace() == expected(0, 1, 2, 3)
    assert len(cluster.profiled()) == 4 and len(cluster.queued()) == 1


@pytest.mark.all_sets
@pytest.mark.slow
def test_a_dependent_job_of_one_that_was_killed(cluster: Cluster, expected) -> None:
    command = ["sh", "-c", "test $RANK = 1 || test $RANK = 2 || sleep 100"]
    job = cluster.start(two_by_two(dependent=True, command=command))
    while len(list(cluster.reports.glob("*.nsys-rep"))) < 2:
        assert job.poll() is None
        time.sleep(0.05)
    job.kill()
    cluster.end_step()
    job.wait(60)
    code, output = cluster.run_queued()
    assert code == 0, output
    assert cluster.trace() == expected(1, 2)
    assert "no report of ranks 0, 3 of 4" in output


@pytest.mark.all_sets
@pytest.mark.slow
def test_module_and_environment_that_use_unset_variables(cluster: Cluster, tmp_path: Path, expected) -> None:
    """nsys comes with the module and nsys2prv-ng with the environment; bash refuses unset variables."""
    module, venv = tmp_path / "module", tmp_path / "my venv"
    module.mkdir()
    (venv / "bin").mkdir(parents=True)
    (cluster.bin / "nsys").rename(module / "nsys")
    (cluster.bin / "nsys2prv-ng").rename(venv / "bin" / "nsys2prv-ng")
    (venv / "bin" / "activate").write_text(f'X="$NOT_SET$X"; PATH="{venv}/bin:$PATH"\n')
    function = f'() {{ Y="$NOT_SET"; [ "$*" = "load nsys/2025" ] && PATH="{module}:$PATH"; }}'
    text = two_by_two(modules=["nsys/2025"], venv=str(venv))
    code, output = cluster.run(text, **{"BASH_FUNC_module%%": function, "SHELLOPTS": "nounset"})
    assert code == 0, output
    assert cluster.trace() == expected(0, 1, 2, 3)


def test_without_the_program_nothing_starts(cluster: Cluster) -> None:
    (cluster.bin / "nsys2prv-ng").unlink()
    code, output = cluster.run(two_by_two())
    assert code == 2 and "set VENV or MODULES" in output
    assert not (cluster.folder / "srun.jsonl").exists()
    code, output = cluster.run(two_by_two(), SLURM_JOB_ID="")
    assert code == 2 and "sbatch" in output


# ---- the nsys of this machine ----------------------------------------------------------------------------------------


def test_with_the_nsys_of_this_machine(tmp_path: Path) -> None:
    """One of two ranks fails: the job ends with its exit code and is translated."""
    nsys = find_nsys()
    if nsys is None:
        pytest.skip("no nsys on this machine")
    program = "import os, sys, time; time.sleep(0.3); sys.exit(int(os.environ['RANK']) * 5)"
    text = render_script(ScriptOptions(command=[sys.executable, "-c", program], nodes=2, gpus_per_node=1))
    for attempt in range(3):  # nsys sometimes loses what a program did
        (tmp_path / str(attempt)).mkdir()
        cluster = Cluster(tmp_path / str(attempt), [], real_nsys=nsys.path, summaries=True)
        code, output = cluster.run(text, TMPDIR=os.environ.get("TMPDIR", "/tmp"))
        assert code == 5, output
        assert "exit code 5" in output
        if not Path("/dev/nvidia0").exists():
            assert output.count("profiling without --gpu-metrics-devices=all") == 2
        tasks = read_trace(cluster.reports / "trace.prv").names["TASK"]
        if tasks == ["rank 0", "rank 1"]:
            break
    assert tasks == ["rank 0", "rank 1"]
