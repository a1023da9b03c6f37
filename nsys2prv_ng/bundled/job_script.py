"""Renders the Slurm script that profiles a job and translates its reports: samples/slurm.sh with a user's values."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from nsys2prv_ng.bundled.files import locate_bundled
from nsys2prv_ng.text.option import Option

_TEMPLATE = locate_bundled("slurm.sh", "samples/slurm.sh")
_CORES_PER_GPU = 8
_TORCHRUN = (
    '(torchrun --nnodes="$SLURM_NNODES" --nproc-per-node={gpus} --rdzv-backend=c10d'
    ' --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --rdzv-id="$SLURM_JOB_ID" train.py)'
)


@dataclass(frozen=True, kw_only=True)
class ScriptOptions:
    """The job that the script is for. The defaults are those of slurm.sh itself."""

    nodes: Annotated[int, Option("Number of nodes.", metavar="N", minimum=1)] = 2
    gpus_per_node: Annotated[int, Option("GPUs of each node, with one rank each.", metavar="N", minimum=1)] = 4
    per_node: Annotated[bool, Option("Run one task per node, with one report: the command starts its ranks.")] = False
    capture_range: Annotated[bool, Option("Profile only between cudaProfilerStart and cudaProfilerStop.")] = False
    dependent: Annotated[bool, Option("Translate in a job of its own, however the first one ends.")] = False
    dask: Annotated[
        bool, Option("Translate on all nodes of the job, by Dask workers that start when the program has ended.")
    ] = False
    container: Annotated[
        str,
        Option("Run in a container: FILE.sif by Apptainer, others by srun's container plugin.", metavar="IMAGE"),
    ] = ""
    venv: Annotated[str, Option("Virtual environment of nsys2prv-ng.", metavar="DIR")] = ""
    modules: Annotated[
        Iterable[str] | None,
        Option("Module to load, such as that of nsys; can be repeated.", metavar="NAME", flag="--module", repeats=True),
    ] = None
    command: Sequence[str] = ()
    """What each task runs; by default a training with PyTorch."""


def render_script(job: ScriptOptions) -> str:
    """Return the script as text."""
    tasks = 1 if job.per_node else job.gpus_per_node
    lines = {
        "#SBATCH --nodes=": str(job.nodes),
        "#SBATCH --ntasks-per-node=": str(tasks),
        "#SBATCH --gpus-per-node=": str(job.gpus_per_node),
        "#SBATCH --cpus-per-task=": str(_CORES_PER_GPU * job.gpus_per_node // tasks),
        "REPORT_PER=": "node" if job.per_node else "rank",
        "CAPTURE_RANGE=": "yes" if job.capture_range else "no",
        "DEPENDENT=": "yes" if job.dependent else "no",
        "DASK=": "yes" if job.dask else "no",
        "VENV=": shlex.quote(str(Path(job.venv).expanduser())) if job.venv else "",
        "MODULES=": f"({shlex.join(job.modules or ())})",
    }
    if job.command:
        lines["COMMAND="] = f"({shlex.join(job.command)})"
    elif job.per_node:
        lines["COMMAND="] = _TORCHRUN.format(gpus=job.gpus_per_node)
    if job.container.endswith(".sif"):
        lines["PREFIX="] = f"(apptainer exec --nv {shlex.quote(job.container)})"
    elif job.container:
        image = shlex.quote(f"--container-image={job.container}")
        lines["SRUN_OPTIONS="] = f'({image} --container-mounts="$PWD" --container-workdir="$PWD")'
    text = _TEMPLATE.read_text(encoding="utf-8").split("\n")
    for start, value in lines.items():
        [place] = [number for number, line in enumerate(text) if line.startswith(start)]
        text[place] = start + value
    return "\n".join(text)
