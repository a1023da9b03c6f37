"""The Slurm script that profiles a job and translates its reports: samples/slurm.sh with a user's values."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nsys2prv_ng.bundled.files import locate_bundled

_TEMPLATE = locate_bundled("slurm.sh", "samples/slurm.sh")
_CORES_PER_GPU = 8
_TORCHRUN = (
    '(torchrun --nnodes="$SLURM_NNODES" --nproc-per-node={gpus} --rdzv-backend=c10d'
    ' --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --rdzv-id="$SLURM_JOB_ID" train.py)'
)


@dataclass(frozen=True)
class ScriptOptions:
    """What the script is printed for. The defaults are those of slurm.sh itself."""

    command: Sequence[str] = ()
    """What each task runs; by default a training with PyTorch."""
    nodes: int = 2
    gpus_per_node: int = 4
    per_node: bool = False
    """A task and report for each node, not for each GPU."""
    capture_range: bool = False
    dependent: bool = False
    container: str = ""
    """An image: a file `.sif` is for Apptainer, all else for the container plugin of srun."""
    venv: str = ""
    modules: Sequence[str] = ()


def render_script(job: ScriptOptions) -> str:
    """The script as text."""
    tasks = 1 if job.per_node else job.gpus_per_node
    lines = {
        "#SBATCH --nodes=": str(job.nodes),
        "#SBATCH --ntasks-per-node=": str(tasks),
        "#SBATCH --gpus-per-node=": str(job.gpus_per_node),
        "#SBATCH --cpus-per-task=": str(_CORES_PER_GPU * job.gpus_per_node // tasks),
        "REPORT_PER=": "node" if job.per_node else "rank",
        "CAPTURE_RANGE=": "yes" if job.capture_range else "no",
        "DEPENDENT=": "yes" if job.dependent else "no",
        "VENV=": shlex.quote(str(Path(job.venv).expanduser())) if job.venv else "",
        "MODULES=": f"({shlex.join(job.modules)})",
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
