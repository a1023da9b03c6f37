"""Renders the Slurm script that profiles a job and translates its reports: samples/slurm.sh with a user's values."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Annotated

from nsys2prv_ng.errors import UsageError, escape_unprintable
from nsys2prv_ng.options.kinds import Flag, Integer, Option, OptionalInteger, Text, Words, at_least
from nsys2prv_ng.runtime.files import locate_bundled
from nsys2prv_ng.value_class import ValueClass

_TEMPLATE = locate_bundled("slurm.sh", "samples/slurm.sh")
_CORES_PER_GPU = 8
"""A choice, which the user sees in the script: nodes with four or eight GPUs have at least these."""
_DEFAULT_PER_NODE = ("torchrun", "train.py")
_STARTS_NODE = ("torchrun", "accelerate", "deepspeed")
"""Programs that start the ranks of one node."""
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}
"""The modules of these programs: python -m torch.distributed.run."""
_STARTS_ALL = ("srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "prun", "jsrun", "aprun")
"""Programs that start the ranks of all nodes."""
_RUNNERS = ("uv", "poetry", "pdm", "pipenv", "hatch", "pixi", "conda", "mamba", "micromamba")
"""Programs whose command `run` starts another program in an environment."""
_TIME_LIMIT = re.compile(r"[0-9]+(:[0-9]+){0,2}|[0-9]+-[0-9]+(:[0-9]+){0,2}|unlimited|infinite", re.IGNORECASE)
"""What sbatch takes: minutes, hours with minutes, days with hours."""
_TORCHRUN_OPTIONS = {
    "nnodes": '"$SLURM_NNODES"',
    "nproc-per-node": "{gpus}",
    "rdzv-backend": "c10d",
    "rdzv-endpoint": '"$MASTER_ADDR:$MASTER_PORT"',
    "rdzv-id": '"$SLURM_JOB_ID"',
}
"""Options that torchrun needs on each node, unless the user gives them."""
_OTHER_RENDEZVOUS = ("standalone", "master-addr", "master-port", "node-rank")
"""Options of torchrun with which ranks do not meet at `rdzv-endpoint`."""


class ScriptOptions(ValueClass, kw_only=True):
    """The job for which the script is made. The defaults are the values in slurm.sh itself."""

    nodes: Annotated[Integer, at_least(1)] = Option("Number of nodes.", 2, metavar="N")
    gpus_per_node: Annotated[Integer, at_least(1)] = Option("GPUs per node, with one rank each.", 4, metavar="N")
    per_node: Flag = Option(
        "Run one task and write one report per node, if the command starts the ranks itself.", False
    )
    capture_range: Flag = Option("Profile only between cudaProfilerStart and cudaProfilerStop.", False)
    delay: Annotated[OptionalInteger, at_least(0)] = Option(
        "Start to profile this long after the program starts.", metavar="SECONDS", shown="0"
    )
    duration: Annotated[OptionalInteger, at_least(1)] = Option(
        "Stop profiling after this time. The program continues.", metavar="SECONDS", shown="as long as the program"
    )
    dependent: Flag = Option("Translate in a separate job, however the first one ends.", False)
    dask: Flag = Option("Translate on all nodes of the job, with Dask workers that start after the program.", False)
    container: Text = Option(
        "Run in a container: FILE.sif by Apptainer, others by srun's container plugin.", "", metavar="IMAGE"
    )
    venv: Text = Option("Virtual environment of nsys2prv-ng.", "", metavar="DIR")
    modules: Words = Option(
        "Module to load, such as nsys. Repeat it for further modules.", metavar="NAME", flag="--module", repeats=True
    )
    account: Text = Option("Account to charge.", "", metavar="NAME")
    partition: Text = Option("Partition to run in.", "", metavar="NAME")
    time_limit: Text = Option("Time limit of the job, as Slurm writes it.", "00:30:00", metavar="HH:MM:SS")
    command: Sequence[str] = ()
    """The command that each task runs; by default a training with PyTorch."""


def choose_form(job: ScriptOptions) -> tuple[ScriptOptions, str]:
    """Return the options that suit the first word of the command, and a note for the user about it.

    Raises UsageError for a command that profiles itself, or would start all ranks in each task if there is more than
    one.
    """
    if not job.command:
        return job, ""
    launcher, _ = _find_launcher(job.command)
    if launcher == "nsys":
        raise UsageError("nsys would run within nsys: the script profiles the command; name the program alone")
    tasks = job.nodes * (1 if job.per_node else job.gpus_per_node)
    if launcher in _STARTS_ALL and tasks > 1:
        raise UsageError(
            f"{escape_unprintable(launcher)} would start all ranks in each of {tasks} tasks; the script's own srun"
            " starts them: name the program alone"
        )
    if launcher not in _STARTS_NODE or job.per_node:
        return job, ""
    note = f"{launcher} starts the ranks of its node: the script runs one task per node, with one report (--per-node)"
    if launcher != "torchrun" and job.nodes > 1:
        note += f"; with {job.nodes} nodes, see that {launcher} gets the number of its node, or use torchrun"
    return replace(job, per_node=True), note


def _find_launcher(command: Sequence[str]) -> tuple[str, int]:
    """Return the name of the program that a command starts, and the number of words up to and including it.

    Skip the variables that `env` sets, and `uv run` and the like. A launcher that python starts as a module has its own
    name.
    """
    first = 0
    if Path(command[0]).name == "env":
        first = 1 + sum(1 for _ in takewhile(lambda word: re.match(r"\w+=", word), command[1:]))
    if first == len(command):
        return "env", first
    if Path(command[first]).name in _RUNNERS and command[first + 1 : first + 2] == ["run"]:
        # The options of a runner may have values: only known programs are found behind them.
        known = (at for at, word in enumerate(command) if at > first + 1 and _is_known(word))
        first = next(known, first)
    name = Path(command[first]).name
    if name.startswith("python") and "-m" in command[first:-1]:
        module = command.index("-m", first) + 1
        if all(word.startswith("-") for word in command[first + 1 : module]) and command[module] in _MODULES:
            return _MODULES[command[module]], module + 1
    return name, first + 1


def _is_known(word: str) -> bool:
    name = Path(word).name
    return name in (*_STARTS_NODE, *_STARTS_ALL, "nsys") or re.fullmatch(r"python[0-9.]*", name) is not None


def render_script(job: ScriptOptions) -> str:
    """Return the script as text.

    Raises UsageError for a value that Slurm would not read as one word, and for two choices of the profiled time.
    """
    for name in ("delay", "duration"):
        if job.capture_range and getattr(job, name) is not None:
            raise UsageError("cannot be combined with --capture-range", parameter=name)
    tasks = 1 if job.per_node else job.gpus_per_node
    lines = {
        "#SBATCH --nodes=": str(job.nodes),
        "#SBATCH --ntasks-per-node=": str(tasks),
        "#SBATCH --gpus-per-node=": str(job.gpus_per_node),
        "#SBATCH --cpus-per-task=": str(_CORES_PER_GPU * job.gpus_per_node // tasks),
        "#SBATCH --time=": _check_time_limit(job.time_limit),
        "REPORT_PER=": "node" if job.per_node else "rank",
        "CAPTURE_RANGE=": "yes" if job.capture_range else "no",
        "DELAY=": "" if job.delay is None else str(job.delay),
        "DURATION=": "" if job.duration is None else str(job.duration),
        "DEPENDENT=": "yes" if job.dependent else "no",
        "DASK=": "yes" if job.dask else "no",
        "VENV=": shlex.quote(str(Path(job.venv).expanduser())) if job.venv else "",
        "MODULES=": f"({shlex.join(job.modules or ())})",
    }
    command = job.command or (_DEFAULT_PER_NODE if job.per_node else ())
    if command:
        lines["COMMAND="] = f"({_quote_command(command, job.gpus_per_node)})"
    if job.container.endswith(".sif"):
        lines["PREFIX="] = f"(apptainer exec --nv {shlex.quote(job.container)})"
    elif job.container:
        image = shlex.quote(f"--container-image={job.container}")
        lines["SRUN_OPTIONS="] = f'({image} --container-mounts="$PWD" --container-workdir="$PWD")'
    text = _TEMPLATE.read_text(encoding="utf-8").split("\n")
    for start, value in lines.items():
        [place] = [number for number, line in enumerate(text) if line.startswith(start)]
        text[place] = start + value
    for name in ("partition", "account"):
        if value := getattr(job, name):
            text.insert(text.index("#SBATCH --job-name=profile") + 1, f"#SBATCH --{name}={_check_word(name, value)}")
    return "\n".join(text)


def _check_word(name: str, value: str) -> str:
    if not re.fullmatch(r"[^\s#\"'\\]+", value) or not value.isprintable():
        raise UsageError("must be one word, without quotes", parameter=name, value=value or "''")
    return value


def _check_time_limit(value: str) -> str:
    if not _TIME_LIMIT.fullmatch(_check_word("time_limit", value)):
        raise UsageError("write HH:MM:SS, days-HH:MM:SS, or minutes", parameter="time_limit", value=value)
    return value


def _quote_command(command: Sequence[str], gpus: int) -> str:
    """Return the words of a command for bash; torchrun gets the options that it needs on each node."""
    launcher, length = _find_launcher(command)
    if launcher != "torchrun":
        return shlex.join(command)
    # Options after the script belong to the script. torchrun reads - and _ alike.
    words = list(takewhile(lambda word: not word.endswith(".py") and word not in ("-m", "--module"), command[length:]))
    given = {word.split("=")[0].lstrip("-").replace("_", "-") for word in words if word.startswith("--")}
    wanted = {name: value for name, value in _TORCHRUN_OPTIONS.items() if name not in given}
    if given.intersection(_OTHER_RENDEZVOUS):
        wanted = {name: value for name, value in wanted.items() if not name.startswith("rdzv")}
    if "standalone" in given:
        wanted.pop("nnodes", None)
    added = [f"--{name}={value.format(gpus=gpus)}" for name, value in wanted.items()]
    return " ".join([shlex.join(command[:length]), *added, *map(shlex.quote, command[length:])])
