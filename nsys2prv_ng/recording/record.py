"""Runs a program under nsys with its own signals, environment and exit status.

nsys records until the window ends, and stays until the program does, so its exit status is that of the program. Both
have a session of their own: only this process passes signals on.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from nsys2prv_ng.errors import TranslationError, escape_unprintable
from nsys2prv_ng.recording.options import RankOptions, RecordingOptions
from nsys2prv_ng.report.launchers import ALLOWED_ENVIRONMENT, LOCAL_RANK_VARIABLES, RANK_VARIABLES
from nsys2prv_ng.report.nsys import find_nsys

_FOR_NSYS = r"PATH|HOME|USER|LOGNAME|TMPDIR|TERM|LANG|LC_\w+|XDG_RUNTIME_DIR|LD_\w+|PYTHONPATH|NSYS_\w+"
"""Variables that nsys needs, or extends."""
_GIVEN = re.compile(f"{ALLOWED_ENVIRONMENT.pattern}|{_FOR_NSYS}")
"""Variables that nsys gets, and the report has: all others may be secrets."""
_PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_AWAITED = {*_PASSED_ON, signal.SIGCHLD}
_OF_USERS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that nsys ignores, in case that Slurm sends them to all processes: they would end it without a report."""
_WITNESS_S = 0.5
"""Time (s) for a signal that was sent to all processes to reach the last of them."""
_END_OF_RECORDING_S = 10
"""Time (s) for a program to end after a signal before the recording is stopped: nsys writes the report either way."""
_PATIENCE_S = 60
"""Time (s) for a program to end after a SIGTERM; torchrun takes 30. A job script gets 120 before its limit."""
_JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")
_OTHER_NAMES = {
    "--gpu-metrics-devices=all": "--gpu-metrics-device=all",  # of older versions
    "--nic-metrics=lf": "--nic-metrics=true",  # before nsys 2026.2
}
"""Options for the first rank of a node, each with its name in other versions of nsys."""


def find_rank(environment: Mapping[str, str]) -> tuple[int | None, bool]:
    """Return the rank of this process, or None, and whether it is the first one of its node."""
    for variable in RANK_VARIABLES:
        if re.fullmatch("[0-9]{1,9}", rank := environment.get(variable, "")):
            local = environment.get(LOCAL_RANK_VARIABLES.get(variable, ""), rank)
            return int(rank), local == "0"
    return None, True


def choose_folder(options: RecordingOptions, otherwise: str = "profile") -> Path:
    """Return the folder of the reports: the chosen one, or that of this job."""
    if options.output:
        return Path(options.output)
    jobs = [job.split(".")[0] for name in _JOB_VARIABLES if (job := os.environ.get(name))]
    return Path(f"profile-{jobs[0]}" if jobs else otherwise)


def run_rank(options: RankOptions, command: list[str]) -> int:
    """Run a command as a rank of a job, under nsys if the rank is chosen; return its exit status.

    Raises TranslationError if there is no nsys, or no folder for the report; then the command is not run.
    """
    environment = dict(os.environ)
    if options.set_ranks and "SLURM_STEP_ID" in environment:
        for name, of_slurm in (("RANK", "PROCID"), ("LOCAL_RANK", "LOCALID"), ("WORLD_SIZE", "NTASKS")):
            environment[name] = environment.get(f"SLURM_{of_slurm}", "")
    rank, _ = find_rank(environment)
    if options.ranks is not None and rank not in options.ranks:
        _become(command, environment)
    if rank in (None, min(options.ranks or (0,))):
        say(options.describe_window())
    return record(options, command, environment, choose_folder(options))


def record(options: RecordingOptions, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> int:
    """Run a command under nsys, which writes a report into `folder`; return its exit status (128 + n for signal n).

    Raises TranslationError if there is no nsys, or the folder cannot be made; then the command is not run.
    """
    nsys = find_nsys()
    if nsys is None:
        raise TranslationError("no nsys, so nothing was started: load its module, or set NSYS_HOME to its folder")
    rank, is_first = find_rank(environment)
    report = folder / ("report.nsys-rep" if rank is None else f"rank{rank}.nsys-rep")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        report.unlink(missing_ok=True)
    except OSError as error:
        raise TranslationError(f"{folder}: {error.strerror}, so nothing was started; choose another folder") from None
    passed = {name: value for name, value in environment.items() if _GIVEN.fullmatch(name)}
    place = Path(tempfile.mkdtemp(prefix="nsys2prv-ng-"))  # that nobody else may read
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    try:
        words = [*options.list_nsys_options(), f"--output={report.with_suffix('').absolute()}".replace("%", "%%")]
        if options.node_metrics and is_first:
            words += _try_metrics(str(nsys.path), passed, place)
        content = b"\0".join(os.fsencode(f"{name}={value}") for name, value in environment.items())
        (place / "environment").write_bytes(content)
        reset = ",".join(str(int(number)) for number in _OF_USERS if signal.getsignal(number) != signal.SIG_IGN)
        words += [sys.executable, "-I", "-S", str(Path(__file__).with_name("start_program.py")), str(place), reset]
        run = _Run(str(nsys.path), [*words, *command], passed, place, options.end_s)
        code = run.wait()
    finally:
        shutil.rmtree(place, ignore_errors=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if not report.exists():
        say(f"no report{'' if rank is None else f' of rank {rank}'}: {run.explain(options)}")
    return code


class _Run:
    """A program that runs under nsys. The signals that it gets are blocked in this process, which waits for them."""

    def __init__(
        self, nsys: str, words: Sequence[str], passed: dict[str, str], place: Path, length: float | None
    ) -> None:
        """Start nsys. `words`: its options and the program. `length`: time (s) until the recording ends."""
        self._session = f"record-{os.getpid()}"
        self._nsys, self._passed, self._place = nsys, passed, place
        self._profile = self._start("profile", f"--session-new={self._session}", *words)
        self._witness = self._start_witness()
        self._stop: subprocess.Popen[bytes] | None = None
        self._program: int | None = None
        self._waiting: list[signal.Signals] = []
        self._length, self._end, self._kill_at = length, float("inf"), float("inf")
        self._killed = False

    def _start(self, *words: str, stdout: int | None = None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self._nsys, *words],
            env=self._passed,
            stdout=stdout,
            close_fds=False,  # MPI may have opened some for the program (PMI_FD)
            start_new_session=True,
            preexec_fn=_prepare_nsys,
        )

    def _start_witness(self) -> subprocess.Popen[bytes]:
        """Start a process that only a signal to all processes reaches, as of Slurm with SignalChildrenProcesses."""
        # It ends when this process does, whatever ends that.
        return subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True, preexec_fn=_unblock)

    def wait(self) -> int:
        """Wait for the program to end; pass signals on to it, and end the recording. Return its exit status."""
        while self._profile.poll() is None or self._is_running():
            got = signal.sigtimedwait(_AWAITED, self._find_timeout())
            self._find_program()
            if got is not None and got.si_signo != signal.SIGCHLD:
                self._end = min(self._end, time.monotonic() + _END_OF_RECORDING_S)
                self._waiting.append(signal.Signals(got.si_signo))
            while self._waiting and self._program is not None:
                self._pass_on(self._waiting.pop(0), self._program)
            self._keep_time()
        if self._stop is not None:
            self._stop.wait()
        self._witness.kill()
        self._witness.wait()
        code = self._profile.returncode
        return 143 if self._killed else 128 - code if code < 0 else code

    def _find_timeout(self) -> float:
        """Return how long nothing is to be done (s): the process id of the program and a lost nsys are polled for."""
        if self._program is None or self._profile.returncode is not None:
            return 0.1
        return min(3600.0, max(0.0, min(self._end, self._kill_at) - time.monotonic()))

    def _find_program(self) -> None:
        if self._program is None and (self._place / "program").exists():
            self._program = int((self._place / "program").read_text())
            if self._length is not None:
                self._end = min(self._end, time.monotonic() + self._length)

    def _is_running(self) -> bool:
        """Return whether the program runs: a process that nobody has waited for does not."""
        try:
            status = Path(f"/proc/{self._program}/stat").read_text()
        except OSError:
            return False
        return status.rpartition(")")[2].split()[0] != "Z"

    def _pass_on(self, number: signal.Signals, program: int) -> None:
        """Pass a signal on to the program, unless all processes got it.

        Slurm announces a time limit by SIGUSR1 or SIGUSR2. A program that handles neither would die of it at once: it
        gets a SIGTERM.
        """
        if number in (signal.SIGUSR1, signal.SIGUSR2) and not _catches(program, number):
            number = signal.SIGTERM
        if number == signal.SIGTERM:
            self._kill_at = min(self._kill_at, time.monotonic() + _PATIENCE_S)
        try:
            self._witness.wait(_WITNESS_S)
            self._witness = self._start_witness()
        except subprocess.TimeoutExpired:
            if self._is_running():
                os.kill(program, number)

    def _keep_time(self) -> None:
        """End the recording, the program, and an nsys that waits for what the program has left, when it is time."""
        now = time.monotonic()
        if now >= self._end and self._profile.poll() is None:
            self._end = float("inf")
            if self._stop is None:
                self._stop = self._start("stop", f"--session={self._session}", stdout=2)
        if now >= self._kill_at:
            group = self._profile.pid if self._killed or self._program is None else self._program
            self._kill_at, self._killed = now + _PATIENCE_S / 2, True
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def explain(self, options: RecordingOptions) -> str:
        """Return why there is no report."""
        if self._profile.returncode < 0:
            return f"nsys was killed by signal {signal.Signals(-self._profile.returncode).name}"
        if self._program is not None and options.capture_range:
            return "the program never called cudaProfilerStart"
        if self._program is not None and options.delay:
            return "the program ended before the recording began; choose a shorter --delay"
        return f"nsys {'wrote none' if self._program else 'did not start the program'}; see its messages above"


def _prepare_nsys() -> None:
    """Let nsys ignore the signals that are for the program alone, and get all others."""
    for number in _OF_USERS:
        signal.signal(number, signal.SIG_IGN)
    _unblock()


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _catches(pid: int, number: int) -> bool:
    """Return whether a process handles a signal itself."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    match = re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)
    return match is not None and bool(int(match[1], 16) >> number - 1 & 1)


def _try_metrics(nsys: str, passed: Mapping[str, str], place: Path) -> list[str]:
    """Return the options for metrics that this nsys takes here: with others it would not start the program.

    Only one nsys of a node can sample its GPUs, and the system may not permit it.
    """
    taken = []
    for option, other in _OTHER_NAMES.items():
        for name in (option, other):
            trial = [nsys, "profile", "--trace=none", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true"]
            trial += [f"--output={place / 'trial'}", name, "true"]
            done = subprocess.run(trial, env=passed, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode == 0:
                taken.append(name)
                break
        else:
            said = " ".join((done.stdout + done.stderr).split())[:300]
            say(f"{os.uname().nodename}: recording without {option}: {said}")
    return taken


def _become(command: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Become the program, without nsys."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise TranslationError(f"{command[0]}: cannot be started: {error.strerror}") from None


def say(text: str) -> None:
    """Print a line about the recording, if there is one to print."""
    if text:
        print(f"nsys2prv-ng: {escape_unprintable(text)}", file=sys.stderr, flush=True)
