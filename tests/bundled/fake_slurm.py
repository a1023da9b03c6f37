"""A Slurm made of scripts that run on this machine, and an nsys that writes sample reports for a job's ranks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.report.fake_nsys import Fake

KEPT = ("NUMBA_CACHE_DIR", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Variables of the environment that jobs have too; PYTHONPATH has the package that is tested."""
PRODUCT = "2025.3.2.0"
"""The nsys that exported the samples."""
PROFILING = Path(tempfile.gettempdir(), f"nsys2prv-ng-tests-{os.getuid()}.lock")
"""Lock of tests that profile with the nsys of this machine, one after the other: nsys 2023.4 loses what one of two
programs did that it profiles simultaneously. `flock --close` keeps the lock from the agent of nsys, which may live on.
"""

# As the real one: starts tasks with SLURM_* set, ends with their highest exit code, and kills them at a SIGTERM. When
# all tasks have ended, it kills what they have left running.
SRUN = """
import json, os, pathlib, signal, subprocess, sys
here = pathlib.Path(os.environ["FAKE_SLURM"])
words = sys.argv[1:]
options = {}
while words[0].startswith("--"):
    name, _, value = words.pop(0).partition("=")
    options[name] = value
with open(here / "srun.jsonl", "a") as calls:
    calls.write(json.dumps([options, words]) + "\\n")
nodes, each = int(os.environ["SLURM_NNODES"]), int(os.environ.get("SLURM_NTASKS_PER_NODE", 1))
if "--ntasks" in options:
    nodes, each = int(options["--nodes"]), int(options["--ntasks"]) // int(options["--nodes"])
tasks = []
def end(*_):
    for task in tasks:
        task.kill()
signal.signal(signal.SIGTERM, end)
for rank in range(nodes * each):
    env = {**os.environ, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % each), "SLURM_STEP_ID": "0"}
    env |= {"SLURM_NODEID": str(rank // each), "SLURM_NTASKS": str(nodes * each), "FAKE_STEP": "1"}
    if "--container-image" in options:
        env["IN_CONTAINER"] = options["--container-image"]
    tasks.append(subprocess.Popen(words, env=env, start_new_session=True))
(here / "step").write_text(json.dumps([task.pid for task in tasks]))
codes = [task.wait() for task in tasks]
for task in tasks:
    try:
        os.killpg(task.pid, signal.SIGKILL)
    except ProcessLookupError:
        continue
sys.exit(max(128 - code if code < 0 else code for code in codes))
"""

SBATCH = """
import json, os, pathlib, sys
here = pathlib.Path(os.environ["FAKE_SLURM"])
if (here / "no-sbatch").exists():
    print("sbatch: error: not from here", file=sys.stderr)
    sys.exit(1)
told = sorted(name for name in os.environ if name.startswith("SLURM_"))
with open(here / "queue.jsonl", "a") as queue:
    queue.write(json.dumps({"options": sys.argv[1:], "told": told}) + "\\n")
print("Submitted batch job 43")
"""

# All processes of the tasks of a step get the signal, or the tasks alone; its batch script does not.
SCANCEL = """
import json, os, pathlib, signal, sys
here = pathlib.Path(os.environ["FAKE_SLURM"])
assert sys.argv[1:] == ["--signal=TERM", "42"], sys.argv
for pid in json.loads((here / "step").read_text()):
    (os.kill if (here / "signals-tasks-alone").exists() else os.killpg)(pid, signal.SIGTERM)
"""

# `nsys profile` runs the program and copies the sample of its rank. It does as nsys.json says, if need be by rank.
# A second SIGTERM loses the report, as of nsys 2023.4. After --duration, it ends with exit code 0 and the program runs
# on, as nsys 2025.3.1 does with --kill=none.
PROFILE = """
import json, os, pathlib, shutil, signal, subprocess, sys
here = pathlib.Path(os.environ["FAKE_SLURM"])
how = json.loads((here / "nsys.json").read_text())
if how.get("container") and os.environ.get("IN_CONTAINER") != how["container"]:
    sys.exit("nsys: command not found")
words = sys.argv[2:]
options = {}
while words[0].startswith("--"):
    name, _, value = words.pop(0).partition("=")
    options[name] = value
trial = words == ["true"]
rank = os.environ["SLURM_PROCID"]
seen = {name: os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "SLURM_LOCALID")}
with open(here / "nsys.jsonl", "a") as calls:
    calls.write(json.dumps({"rank": rank, "options": options, "program": words, "seen": seen}) + "\\n")
for name in how.get("refuses", []):
    if name in options or name in sys.argv:
        print("Illegal " + name + " arguments.\\n\\nusage: nsys profile")
        sys.exit(1)
how.update(how.get("of_ranks", {}).get(rank, {}))
program = subprocess.Popen(words)
signals = []
def receive(*_):
    signals.append(1)
    if len(signals) > 1:
        os._exit(1)
signal.signal(signal.SIGTERM, receive)
length = None
if "--duration" in options:
    assert options["--kill"] == "none"
    length = float(options.get("--delay", 0)) + float(options["--duration"])
try:
    code = program.wait(length)
except subprocess.TimeoutExpired:
    code = 0
output = pathlib.Path(options["--output"].replace("%q{SLURM_PROCID}", rank) + ".nsys-rep")
if how.get("lost"):
    os.kill(os.getpid(), signal.SIGKILL)
if not trial:
    making = output.with_suffix(".making")
    shutil.copyfile(how["samples"][int(rank)], making)
    os.utime(making, (1, 1))
    if "size" in how:
        os.truncate(making, how["size"])
    making.rename(output)
sys.exit(143 if code < 0 else code)
"""

APPTAINER = """
import os, sys
assert sys.argv[1:3] == ["exec", "--nv"], sys.argv
os.environ["IN_CONTAINER"] = sys.argv[3]
os.execvp(sys.argv[4], sys.argv[4:])
"""


# The real program for everything but the numbers of the job, which most jobs here do not look at.
WITHOUT_SUMMARY = f"""
if [ "$1" = summary ]; then exit; fi
exec "{sys.executable}" -m nsys2prv_ng "$@"
"""


class Cluster:
    """A folder with all these programs, and a working directory from which jobs are submitted."""

    def __init__(
        self, folder: Path, samples: list[Path], *, real_nsys: Path | None = None, summaries: bool = False
    ) -> None:
        self.folder = folder / "slurm"
        self.bin = self.folder / "bin"
        self.work = folder / "work"
        self.bin.mkdir(parents=True)
        self.work.mkdir()
        for name, code in (("srun", SRUN), ("sbatch", SBATCH), ("scancel", SCANCEL), ("apptainer", APPTAINER)):
            self.program(name, code)
        self.environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(folder),
            "FAKE_SLURM": str(self.folder),
            **{name: os.environ[name] for name in KEPT if name in os.environ},
        }
        whole = f'exec "{sys.executable}" -m nsys2prv_ng "$@"'
        self.offer(self.bin / "nsys2prv-ng", whole if summaries else WITHOUT_SUMMARY)
        self.job: subprocess.Popen[str] | None = None
        if real_nsys:
            profile = f'exec flock --close "{PROFILING}" "{real_nsys}" "$@"'
            self.offer(self.bin / "nsys", f'[ "$1" != profile ] || {profile}\nexec "{real_nsys}" "$@"')
            return
        fake = Fake(self.folder / "exporter", copies=True, product=PRODUCT, version=f"NVIDIA Nsight {PRODUCT}")
        self.program("nsys-profile", PROFILE)
        self.offer(
            self.bin / "nsys",
            f'[ "$1" != profile ] || exec nsys-profile "$@"\n'
            f'echo "${{IN_CONTAINER-host}}" >>"{self.folder}/exported-in"\nexec "{fake.path}" "$@"',
        )
        self.behave(samples=[str(sample) for sample in samples])

    def behave(self, **how: object) -> None:
        """Set how nsys behaves, in addition to earlier calls."""
        file = self.folder / "nsys.json"
        before = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(before | how))

    def program(self, name: str, code: str) -> None:
        (self.folder / f"{name}.py").write_text(code)
        self.offer(self.bin / name, f'exec "{sys.executable}" -S "{self.folder / name}.py" "$@"')

    def offer(self, path: Path, script: str) -> None:
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def start(self, script: str, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Run a copy of a batch script as Slurm does, with the requests of its #SBATCH lines in the environment."""
        asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)$", script, re.MULTILINE))
        of_job = {
            "SLURM_JOB_ID": "42",
            "SLURM_JOB_ACCOUNT": "mine",
            "SLURM_NNODES": asked["nodes"],
            "SLURM_NTASKS_PER_NODE": asked["ntasks-per-node"],
            "SLURM_CPUS_PER_TASK": asked["cpus-per-task"],
            "SLURM_PROCID": "0",
        }
        spooled = self.folder / "slurm_script"
        spooled.write_text(script)
        return self._popen(["bash", str(spooled), *words], {**of_job, **environment})

    def _popen(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.work,
            env={**self.environment, **environment},
            start_new_session=True,
        )

    def run(self, script: str, *words: str, **environment: str) -> tuple[int, str]:
        """Run a job; return its exit code and output."""
        job = self.start(script, *words, **environment)
        output = job.communicate(timeout=300)[0]
        return job.returncode, output

    def queued(self) -> list[dict[str, list[str]]]:
        """Return the jobs that jobs submitted: the options of sbatch, and the SLURM_* variables it received."""
        file = self.folder / "queue.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def run_queued(self) -> tuple[int, str]:
        """Run the only job that a job submitted."""
        [job] = self.queued()
        [wrapped] = [word.removeprefix("--wrap=") for word in job["options"] if word.startswith("--wrap=")]
        process = self._popen(["sh", "-c", wrapped], {"SLURM_JOB_ID": "43", "SLURM_NNODES": "1"})
        output = process.communicate(timeout=300)[0]
        return process.returncode, output

    def profiled(self, *, trials: bool = False) -> list[dict[str, dict[str, str]]]:
        """Return the calls of `nsys profile` by rank, without those that only try an option (or only those)."""
        lines = [json.loads(line) for line in (self.folder / "nsys.jsonl").read_text().splitlines()]
        return sorted(
            (call for call in lines if (call["program"] == ["true"]) == trials), key=lambda call: int(call["rank"])
        )

    def end_step(self) -> None:
        """End the processes that a killed job has left running."""
        for pid in json.loads((self.folder / "step").read_text()):
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    @property
    def reports(self) -> Path:
        return self.work / "profile-42"

    def trace(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.reports.iterdir() if path.name.startswith("trace.")}
