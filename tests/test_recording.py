"""The commands of the page on recording, run as they stand, with programs that stand in for launchers and nsys."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.test_docs import DOCS, ROOT

PAGE = (DOCS / "start/recording.md").read_text()
RECIPES = re.findall(r"^<!-- recipe: (\w+) (\d) -->\n```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
"""Launcher, number of reports and command of each recipe. Each starts four ranks."""

# Two tasks on each node, unless the command says otherwise.
SRUN = """
options = {}
while words[0].startswith("--"):
    name, _, value = words.pop(0).partition("=")
    options[name] = int(value)
each = options.get("--ntasks-per-node", 2)
for rank in range(options.get("--ntasks", options.get("--nodes", 2) * each)):
    start(words, SLURM_PROCID=rank, SLURM_LOCALID=rank % each, SLURM_NODEID=rank // each)
"""

# Open MPI, or MPICH if nsys is told so: each has a variable of its own.
MPIRUN = """
assert words.pop(0) == "-n"
for rank in range(int(words.pop(0))):
    start(words, **{"PMI_RANK" if "--mpi-impl=mpich" in words else "OMPI_COMM_WORLD_RANK": rank})
"""

# As their documentation and sources: RANK counts over all nodes, and python is put before the program or not.
TORCHRUN = """
options = {}
while words[0].startswith("--"):
    name, _, value = words.pop(0).partition("=")
    options[name] = value
each, node = int(options["--nproc-per-node"]), int(os.environ.get("SLURM_NODEID", 0))
assert int(options.get("--nnodes", 1)) == 1 or options["--rdzv-endpoint"] == "first:29500"
for local in range(each):
    command = words if "--no-python" in options else ["python", "-u", *words]
    start(command, RANK=node * each + local, LOCAL_RANK=local)
"""

ACCELERATE = """
assert words[:3] == ["launch", "--multi_gpu", "--num_processes"]
count = int(words[3])
del words[:4]
bare = words[0] == "--no_python"
for rank in range(count):
    start(words[1:] if bare else ["python", "-u", *words], RANK=rank, LOCAL_RANK=rank)
"""

# It adds an option to the program that it starts, be that python or not.
DEEPSPEED = """
options = {}
while words[0].startswith("--"):
    name, _, value = words.pop(0).partition("=")
    options[name] = value
for rank in range(int(options["--num_gpus"])):
    own = [] if "--no_local_rank" in options else [f"--local_rank={rank}"]
    python = [] if "--no_python" in options else ["python", "-u"]
    start([*python, words[0], *own, *words[1:]], RANK=rank, LOCAL_RANK=rank)
"""

# It refuses what is no option, a variable that is not set, and a report that exists.
NSYS = """
import re
known = {"--trace", "--sample", "--cpuctxsw", "--capture-range", "--capture-range-end", "--mpi-impl", "--kill"}
known |= {"--gpu-metrics-devices", "--nic-metrics", "--session-new", "--force-overwrite", "--output"}
if words == ["--version"]:
    print("NVIDIA Nsight Systems version 2025.3.2.474-253236389321v0")
    sys.exit()
assert words.pop(0) == "profile", words
options = []
while words[0].startswith("-"):
    option = words.pop(0)
    if option == "-o":
        option = f"--output={words.pop(0)}"
    assert option.partition("=")[0] in known, option
    options.append(option)
if words == ["true"]:
    sys.exit()
[report] = [option.partition("=")[2] for option in options if option.startswith("--output=")]
report = re.sub(r"%q{(\\w+)}", lambda match: os.environ[match[1]], report)
open(f"{report}.nsys-rep", "x").close()
program = words[6:] if "-I" in words[1:2] else words
log(report=os.path.relpath(report), options=options, program=program)
start(words)
"""

PYTHON = """
variables = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
log(ran=words, rank=next(os.environ[name] for name in variables if name in os.environ))
"""

# Children run one after the other, and a launcher fails if one of them does.
COMMON = """
import json, os, subprocess, sys
words = sys.argv[1:]
def start(command, **variables):
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    if subprocess.run(command, env=environment).returncode:
        sys.exit(1)
def log(**line):
    with open(os.environ["NSYS_LOG"], "a") as file:
        file.write(json.dumps(line) + "\\n")
"""
STAND_INS = {
    "srun": SRUN,
    "mpirun": MPIRUN,
    "torchrun": TORCHRUN,
    "accelerate": ACCELERATE,
    "deepspeed": DEEPSPEED,
    "nsys": NSYS,
    "python": PYTHON,
    "nsys2prv-ng": f'os.execv({sys.executable!r}, [{sys.executable!r}, "-m", "nsys2prv_ng", *words])',
}


def record(command: str, folder: Path) -> tuple[int, list[dict[str, Any]], list[dict[str, Any]]]:
    """Run a command with the stand-ins; return its exit code, the calls of nsys, and the programs that ran."""
    programs = folder / "bin"
    programs.mkdir()
    for name, code in STAND_INS.items():
        (programs / name).write_text(f"#!{sys.executable} -S\n{COMMON}{code}")
        (programs / name).chmod(0o755)
    log = folder / "log"
    log.touch()
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "NSYS_LOG": str(log), "MASTER_ADDR": "first"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(["bash", "-eu", "-c", command], cwd=folder, env=environment, capture_output=True, check=False)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return (done.returncode, [line for line in lines if "report" in line], [line for line in lines if "ran" in line])


@pytest.mark.parametrize(("launcher", "reports", "command"), RECIPES)
def test_each_rank_has_a_report_of_its_own(launcher: str, reports: str, command: str, tmp_path: Path) -> None:
    assert command.startswith(f"{launcher} ")
    code, calls, ran = record(command, tmp_path)
    assert code == 0
    per_rank = reports == "4"
    folder = "profile/" if "run-rank" in command else ""
    names = [f"{folder}rank{rank}" for rank in range(4 if per_rank else 2)]
    assert sorted(call["report"] for call in calls) == names
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("**/*.nsys-rep")) == [
        f"{name}.nsys-rep" for name in names
    ]
    assert {call["program"][0] for call in calls} == {"python" if per_rank else "torchrun"}
    for call in calls:
        assert {"--sample=none", "--cpuctxsw=none"} <= set(call["options"])
        assert any(re.match(r"--trace=cuda,nvtx,osrt(,mpi)?$", option) for option in call["options"])
    assert sorted(line["rank"] for line in ran) == ["0", "1", "2", "3"]
    assert all("train.py" in line["ran"] for line in ran)


def test_the_page_has_all_launchers() -> None:
    assert {launcher for launcher, _, _ in RECIPES} == {"srun", "mpirun", "torchrun", "accelerate", "deepspeed"}
    assert len(RECIPES) == PAGE.count("<!-- recipe:") == 9


def test_one_rank_of_each_node_samples_gpu_metrics(tmp_path: Path) -> None:
    [command] = [command for _, _, command in RECIPES if "node-metrics" in command]
    _, calls, _ = record(command, tmp_path)
    assert sorted(call["report"] for call in calls if "--gpu-metrics-devices=all" in call["options"]) == [
        "profile/rank0",
        "profile/rank2",
    ]


@pytest.mark.parametrize(
    ("of_page", "wrong"),
    [
        ("rank%q{RANK}", "rank"),
        ("rank%q{RANK}", "rank%q{SLURM_PROCID}"),
        ("--no_local_rank", ""),
        ("--sample=none", "--sampling=none"),
    ],
)
def test_what_would_go_wrong_is_found(of_page: str, wrong: str, tmp_path: Path) -> None:
    [command] = [c for launcher, _, c in RECIPES if of_page in c and (launcher == "deepspeed" or "nsys profile" in c)]
    assert of_page in command
    code, _, _ = record(command.replace(of_page, wrong), tmp_path)
    assert code != 0


# ---- a job script of a site ------------------------------------------------------------------------------------------

CENTRES = (DOCS / "guides/hpc-centres.md").read_text()


@pytest.mark.parametrize(("program", "code"), [("python train.py", 0), ("false", 1)])
def test_a_job_script_ends_as_the_program_does(program: str, code: int, tmp_path: Path) -> None:
    """It starts in the home of the user, and there is no nsys2prv-ng here: the summary fails, and the job does not."""
    [script] = re.findall(r"^<!-- job script -->\n```sh\n(.*?)^```$", CENTRES, re.MULTILINE | re.DOTALL)
    assert script.count("python train.py") == 1
    (tmp_path / "job.sh").write_text(script.replace("python train.py", program))
    start = f"cd / && PBS_O_WORKDIR={tmp_path} PBS_JOBID=4711.server exec bash {tmp_path}/job.sh"
    ended, calls, _ = record(start, tmp_path)
    assert ended == code
    expected = [f"profile-4711/rank{rank}" for rank in range(4 if code == 0 else 1)]
    assert [call["report"] for call in calls] == expected
    assert sorted(map(str, tmp_path.glob("*/*.nsys-rep"))) == [f"{tmp_path}/{name}.nsys-rep" for name in expected]
