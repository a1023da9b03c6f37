"""What is recorded of a program, as options of run-rank, record and slurm."""

from typing import Annotated

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.kinds import Flag, Numbers, Option, OptionalInteger, Text, Words, at_least
from nsys2prv_ng.value_class import ValueClass

WINDOW_S = 60
"""Length of the recording (s) unless the user chooses one. docs/start/recording.md has captures of 2.7 MB a second for
each rank, with 26,000 kernels a second: a report of 160 MB at most in such a job."""

_NSYS = {
    "--trace": "cuda,nvtx,osrt,mpi",
    "--sample": "none",
    "--cpuctxsw": "none",
    "--kill": "none",
    "--force-overwrite": "true",
}
"""Options of nsys. With --kill=none the program goes on when the recording ends."""
_RESERVED = ("--output", "--session-new", "--kill", "--delay", "--duration", "--capture-range", "--capture-range-end")
RANKS_HELP = "Record only these ranks. The others run without nsys."


class RecordingOptions(ValueClass, kw_only=True):
    """What is recorded of a program, and where its report goes."""

    output: Text = Option("Folder of the reports.", "", metavar="DIR", short="-o", shown="profile-ID, by job or time")
    delay: Annotated[OptionalInteger, at_least(0)] = Option(
        "Start to record this long after the program starts.", metavar="SECONDS", shown="0"
    )
    duration: Annotated[OptionalInteger, at_least(1)] = Option(
        "Stop recording after this time. The program continues.", metavar="SECONDS", shown=str(WINDOW_S)
    )
    whole: Flag = Option("Record until the program ends. Reports may become very large.", False)
    capture_range: Flag = Option("Record only between cudaProfilerStart and cudaProfilerStop.", False)
    node_metrics: Flag = Option("Sample GPUs and network cards, on the first rank of each node.", False)
    nsys: Words = Option(
        "Further option of nsys, such as --nsys=--trace=cuda,nvtx,ucx. Repeat it for more.",
        metavar="--NAME=VALUE",
        repeats=True,
    )

    def __post_init__(self) -> None:
        """Raise UsageError for two choices of the recorded time, and for what is no option of nsys for users."""
        for name in ("delay", "duration", "whole"):
            if self.capture_range and getattr(self, name) not in (None, False):
                raise UsageError("cannot be combined with --capture-range", parameter=name)
        if self.whole and self.duration is not None:
            raise UsageError("cannot be combined with --whole", parameter="duration")
        for word in self.nsys or ():
            if not word.startswith("--") or "=" not in word:
                raise UsageError("write --nsys=--NAME=VALUE", parameter="nsys", value=word)
            if word.split("=")[0] in _RESERVED:
                raise UsageError("nsys2prv-ng sets it itself (see --help)", parameter="nsys", value=word)

    @property
    def end_s(self) -> float | None:
        """Time (s) from the start of the program to the end of the recording; None if nothing bounds it from here."""
        if self.whole or self.capture_range:
            return None
        return (self.delay or 0) + (self.duration or WINDOW_S)

    def list_nsys_options(self) -> list[str]:
        """Return the options of `nsys profile` that are the same for all ranks."""
        words = _NSYS | dict(word.split("=", 1) for word in self.nsys or ())
        if self.capture_range:
            words |= {"--capture-range": "cudaProfilerApi", "--capture-range-end": "stop"}
        if self.delay:
            words["--delay"] = str(self.delay)
        return [f"{name}={value}" for name, value in words.items()]

    def describe_window(self) -> str:
        """Return a line that says what is recorded, and how to choose otherwise; empty if the user chose all of it."""
        if self.capture_range:
            return "recording from cudaProfilerStart to cudaProfilerStop"
        if self.whole:
            return ""
        when = f"{self.duration or WINDOW_S} s, from {self.delay} s on" if self.delay else f"the first {self.end_s} s"
        return f"recording {when} of the program (choose by --delay, --duration, --capture-range or --whole)"


class RankOptions(RecordingOptions, kw_only=True):
    """What is recorded of the ranks of a job."""

    ranks: Numbers = Option(RANKS_HELP, metavar="0-3,8", shown="all")
    set_ranks: Flag = Option("Set RANK, LOCAL_RANK and WORLD_SIZE, for PyTorch, as srun numbers its tasks.", False)
