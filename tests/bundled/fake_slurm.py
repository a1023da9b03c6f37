"""A Slurm made of scripts that run on this machine, and an nsys that writes sample reports for a job's ranks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
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
        env["NSYS_CONTAINER"] = options["--container-image"]
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

# As nsys 2023.4 and 2025.3.1 with --kill=none: `nsys profile` records the program, and ends with its exit code; `nsys
# stop` writes the report while the program goes on. A SIGTERM to all processes ends the agent of nsys, and loses the
# report. It does as nsys.json says, if need be by rank.
PROFILE = """
import json, os, pathlib, shutil, signal, subprocess, sys, time
here = pathlib.Path(os.environ["NSYS_FAKE"])
how = json.loads((here / "nsys.json").read_text())
if how.get("container") and os.environ.get("NSYS_CONTAINER") != how["container"]:
    sys.exit("nsys: command not found")
words = sys.argv[2:]
options = {}
while words and words[0].startswith("--"):
    name, _, value = words.pop(0).partition("=")
    options[name] = value
if sys.argv[1] == "stop":
    mark = here / options["--session"]
    if not mark.exists():
        sys.exit("No such session.")
    pid, output = mark.read_text().split("\\n")
    os.kill(int(pid), signal.SIGALRM)
    while mark.exists():
        time.sleep(0.02)
    print("Generated: " + output)
    sys.exit()
trial = words == ["true"]
rank = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))
with open(here / "nsys.jsonl", "a") as calls:
    line = {"rank": rank, "options": options, "program": words if trial else words[6:], "seen": dict(os.environ)}
    calls.write(json.dumps(line) + "\\n")
for name in how.get("refuses", []):
    if name in options or name in sys.argv:
        print("Illegal " + name + " arguments.\\n\\nusage: nsys profile")
        sys.exit(1)
if trial:
    sys.exit()
how.update(how.get("of_ranks", {}).get(rank, {}))
start = time.monotonic()
output = pathlib.Path(options["--output"].replace("%%", "%") + ".nsys-rep")
mark = here / options["--session-new"]
def write(*_):
    if not mark.exists():
        return
    if time.monotonic() - start >= float(options.get("--delay", 0)):
        making = output.with_suffix(".making")
        shutil.copyfile(how["samples"][int(rank)], making)
        os.utime(making, (1, 1))
        if "size" in how:
            os.truncate(making, how["size"])
        making.rename(output)
    mark.unlink()
signal.signal(signal.SIGALRM, write)
signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
mark.write_text(str(os.getpid()) + "\\n" + str(output))
# Variables of its own, as for its libraries.
own = {"LD_PRELOAD": "", "NVTX_INJECTION64_PATH": "/nsys/lib.so"}
program = subprocess.Popen(words, env={**os.environ, **own}, close_fds=False)
if how.get("lost"):
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
code = program.wait()
write()
sys.exit(128 - code if code < 0 else code)
"""

APPTAINER = """
import os, sys
assert sys.argv[1:3] == ["exec", "--nv"], sys.argv
os.environ["NSYS_CONTAINER"] = sys.argv[3]
os.execvp(sys.argv[4], sys.argv[4:])
"""


# The real program for everything but the numbers of the job, which most jobs here do not look at.
WITHOUT_SUMMARY = f"""
if [ "$1" = summary ]; then echo "$1" >>"$FAKE_SLURM/summarized"; exit; fi
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
        for name, code in (("srun", SRUN), ("sbatch", SBATCH), ("apptainer", APPTAINER)):
            self.program(name, code)
        self.environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(folder),
            "FAKE_SLURM": str(self.folder),
            "NSYS_FAKE": str(self.folder),  # nsys gets few variables
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
            f'case $1 in profile | stop) exec nsys-profile "$@" ;; esac\n'
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
        with suppress(ProcessLookupError):  # Slurm ends what a job leaves running
            os.killpg(job.pid, signal.SIGKILL)
        if (self.folder / "step").exists():
            self.end_step()
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

    def signal_step(self, number: int, *, everywhere: bool) -> None:
        """Signal the tasks of the step, or all of its processes, as Slurm does with SignalChildrenProcesses."""
        tasks = set(json.loads((self.folder / "step").read_text()))
        if everywhere:
            parents = {}
            for stat in Path("/proc").glob("[0-9]*/stat"):
                try:
                    parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
                except OSError:
                    continue
            while more := {pid for pid, parent in parents.items() if parent in tasks} - tasks:
                tasks |= more
        for pid in tasks:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def end_step(self) -> None:
        """End the processes that a killed job has left running."""
        for pid in json.loads((self.folder / "step").read_text()):
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def of_rank(self, rank: int) -> bytes:
        """Return the report that was written for a rank; nothing if there is none."""
        path = self.reports / f"rank{rank}.nsys-rep"
        return path.read_bytes() if path.exists() else b""

    def rank(
        self, *words: str, slurm: bool = True, rank: int = 0, local: int = 0, **environment: str
    ) -> subprocess.Popen[str]:
        """Start `nsys2prv-ng` with words, as a task of a job of two nodes with two tasks each, or without Slurm."""
        numbers = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local), "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"}
        of_task = {**numbers, "SLURM_JOB_ID": "42"} if slurm else {}
        return self._popen([str(self.bin / "nsys2prv-ng"), *words], {**of_task, **environment})

    @property
    def reports(self) -> Path:
        return self.work / "profile-42"

    def trace(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.reports.iterdir() if path.name.startswith("trace.")}
