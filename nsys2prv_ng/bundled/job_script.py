"""Renders the Slurm script that records a job and prints its summary: samples/slurm.sh, or a site's, with values."""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Annotated

from nsys2prv_ng.errors import UsageError, escape_unprintable
from nsys2prv_ng.options.kinds import Flag, Integer, Numbers, Option, Text, Words, at_least, list_options
from nsys2prv_ng.recording.options import RANKS_HELP, RecordingOptions
from nsys2prv_ng.runtime.files import locate_bundled

_TEMPLATE = locate_bundled("samples/slurm.sh")
_OF_SITE = "NSYS2PRV_NG_JOB_TEMPLATE"
"""Environment variable with the template of a site."""
_MARK = re.compile(r"^@([A-Z]+)@\n|@([A-Z]+)@", re.MULTILINE)
"""What values replace in a template: alone in a line, whole lines, of which there may be none."""
_CORES_PER_GPU = 8
"""A choice, which the user sees in the script: nodes with four or eight GPUs have at least these."""
_DEFAULT = ("python", "train.py")
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
_DEFAULT_FOLDER = "$PWD/profile-${SLURM_JOB_ID:?submit this script with sbatch}"
_DASK = """cluster=$REPORTS/scheduler.json
dask scheduler --scheduler-file "$cluster" --port 0 --no-dashboard >>"$REPORTS/dask.log" 2>&1 &
srun --overlap --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" --cpus-per-task=8 \\
    dask worker --scheduler-file "$cluster" --nworkers 8 --nthreads 1 --memory-limit 0 --no-dashboard \\
    --local-directory "${TMPDIR:-/tmp}" >>"$REPORTS/dask.log" 2>&1 &
for _ in {1..60}; do if [ -e "$cluster" ]; then break; else sleep 1; fi; done
"""
"""Starts Dask on all nodes of a job. It ends with the job."""
_SUBMIT = """sbatch --dependency=afterany:"$SLURM_JOB_ID" ${SLURM_JOB_ACCOUNT:+"--account=$SLURM_JOB_ACCOUNT"} \\
    --nodes=1 --ntasks=1 --cpus-per-task=8 --time=01:00:00 --output="$REPORTS.out" \\
    --wrap="REPORTS='$REPORTS'; $(declare -f summarize); summarize" || here=yes
"""
"""Submits the summary as a job of its own; where that is not allowed, it is made in this one."""
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


class ScriptOptions(RecordingOptions, kw_only=True):
    """The job for which the script is made."""

    nodes: Annotated[Integer, at_least(1)] = Option("Number of nodes.", 2, metavar="N")
    gpus_per_node: Annotated[Integer, at_least(1)] = Option("GPUs per node, with one rank each.", 4, metavar="N")
    per_node: Flag = Option(
        "Run one task and write one report per node, if the command starts the ranks itself.", False
    )
    ranks: Numbers = Option(RANKS_HELP, metavar="0-3,8", shown="all")
    paraver: Flag = Option("Also translate the reports into a Paraver trace.", False)
    dependent: Flag = Option("Summarize in a separate job, however the first one ends.", False)
    dask: Flag = Option("Summarize on all nodes of the job, with Dask workers that start after the program.", False)
    container: Text = Option(
        "Image with the program, nsys and nsys2prv-ng: FILE.sif for Apptainer, others for srun's container plugin.",
        "",
        metavar="IMAGE",
    )
    venv: Text = Option("Virtual environment of nsys2prv-ng.", "", metavar="DIR")
    modules: Words = Option(
        "Module to load, such as nsys. Repeat it for further modules.", metavar="NAME", flag="--module", repeats=True
    )
    account: Text = Option("Account to charge.", "", metavar="NAME")
    partition: Text = Option("Partition to run in.", "", metavar="NAME")
    time_limit: Text = Option("Time limit of the job, as Slurm writes it.", "00:30:00", metavar="HH:MM:SS")
    sbatch: Words = Option(
        "Further option of sbatch, such as --sbatch=--qos=debug. Repeat it for more.", metavar="OPTION", repeats=True
    )
    template: Text = Option("Script of the site, with marks such as @NODES@.", "", metavar="FILE", shown=f"${_OF_SITE}")
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
    if launcher in ("nsys", "nsys2prv-ng"):
        raise UsageError("nsys would run within nsys: the script records the command; name the program alone")
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

    Raises UsageError for a value that Slurm would not read as one word, and for a template that cannot be used.
    """
    tasks = 1 if job.per_node else job.gpus_per_node
    command = job.command or (_DEFAULT_PER_NODE if job.per_node else _DEFAULT)
    program = shlex.quote(f"{Path(job.venv).expanduser()}/bin/nsys2prv-ng") if job.venv else "nsys2prv-ng"
    step, alone = "", ""
    if job.container.endswith(".sif"):
        step = alone = f"apptainer exec --nv {shlex.quote(job.container)} \\\n    "
    elif job.container:
        image = shlex.quote(f"--container-image={job.container}")
        step = f'{image} --container-mounts="$PWD" --container-workdir="$PWD" \\\n    '
        alone = f"srun --overlap --nodes=1 --ntasks=1 {step}"
    before, after = _list_analysis(job, alone + program)
    sbatch = [f"--{name}={getattr(job, name)}" for name in ("partition", "account") if getattr(job, name)]
    values = {
        "NODES": str(job.nodes),
        "TASKS": str(tasks),
        "GPUS": str(job.gpus_per_node),
        "CORES": str(_CORES_PER_GPU * job.gpus_per_node // tasks),
        "TIME": _check_time_limit(job.time_limit),
        "SBATCH": "".join(f"#SBATCH {_check_option(word)}\n" for word in (*sbatch, *(job.sbatch or ()))),
        "SETUP": "".join(f"module load {shlex.quote(name)}\n" for name in job.modules or ()),
        "REPORTS": shlex.quote(job.output) if job.output else _DEFAULT_FOLDER,
        "BEFORE": before,
        "RUN": " ".join([f"{step}{program} run-rank", *_list_recording(job)]),
        "COMMAND": _quote_command(command, job.gpus_per_node),
        "AFTER": after,
    }
    if job.venv and not job.container:
        values["SETUP"] += f"source {shlex.quote(f'{Path(job.venv).expanduser()}/bin/activate')}\n"
    return _MARK.sub(lambda mark: values.get(mark[1] or mark[2], mark[0]), _read_template(job.template))


def _read_template(chosen: str) -> str:
    """Return the template of the user, of the site, or of this package. Raises UsageError."""
    path = Path(chosen or os.environ.get(_OF_SITE) or _TEMPLATE)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", "") or "is not a text"
        raise UsageError(f"cannot be read: {reason}", parameter="template", value=str(path)) from None
    if not {"@RUN@", "@COMMAND@"} <= set(re.findall("@[A-Z]+@", text)):
        raise UsageError("has no @RUN@ or no @COMMAND@", parameter="template", value=str(path))
    return text


def _list_recording(job: ScriptOptions) -> list[str]:
    """Return the options of run-rank."""
    words = [] if job.per_node else ["--set-ranks"]
    for name, option in list_options(RecordingOptions).items():
        value = getattr(job, name)
        if name == "output" or value in (None, False):
            continue
        values = value if option.repeats else [value]
        words += [option.flag if option.is_flag else f"{option.flag}={one}" for one in values]
    if job.ranks is not None:
        words.append(f"--ranks={','.join(map(str, job.ranks))}")
    return list(map(shlex.quote, words))


def _list_analysis(job: ScriptOptions, program: str) -> tuple[str, str]:
    """Return the lines before and after the program that summarize, and translate, its reports."""
    reports = '"$REPORTS"/*.nsys-rep' + (' --dask "$cluster"' if job.dask else "")
    lines = [f'{program} summary {reports} --quiet --save "$REPORTS/summary.json" --html "$REPORTS/summary.html"']
    if job.paraver:
        lines.append(f'{program} translate {reports} "$REPORTS/trace.prv" --force --stats "$REPORTS/stats.json"')
    text = (_DASK if job.dask else "") + "\n".join(lines) + "\n"
    if not job.dependent:
        return "", text
    if job.dask:
        raise UsageError("cannot be combined with --dask", parameter="dependent")
    return f"summarize() {{\n{text}}}\n{_SUBMIT}", 'if [ "${here-}" = yes ]; then summarize; fi\n'


def _check_word(name: str, value: str) -> str:
    if not re.fullmatch(r"[^\s#\"'\\]+", value) or not value.isprintable():
        raise UsageError("must be one word, without quotes", parameter=name, value=value or "''")
    return value


def _check_option(word: str) -> str:
    if not re.fullmatch(r"-\S.*", word) or not word.isprintable():
        raise UsageError("write an option of sbatch, such as --qos=debug", parameter="sbatch", value=word)
    return word


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
