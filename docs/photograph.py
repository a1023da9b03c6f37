"""Takes pictures of wxParaver for the documentation, on a virtual screen: python docs/photograph.py [NAME...]

The traces are those of the samples, of the exercises, and of reports in ../shared/reports, if that folder is there.
`wxparaver`, `Xvfb`, `openbox`, `xdotool` and ImageMagick's `import` and `convert` must be in PATH.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from exercises import ROOT, find_exercises

MAIN = "Paraver$"
"""wxParaver's main window."""
_FURTHER = ROOT.parent / "shared/reports"
_SECONDS = 60
"""Time that a window may take to appear."""
PROGRAM = [sys.executable, "-m", "nsys2prv_ng"]
Run = Callable[..., str]
"""Runs a command on the screen and returns what it prints."""
AnyPicture = TypeVar("AnyPicture")


@dataclass(frozen=True)
class Window:
    """A part of a picture: how the title of a window begins (a regular expression), and the rows of a histogram.

    An empty row, and those of totals, count.
    """

    title: str
    rows: int = 0


@dataclass(frozen=True)
class Picture:
    """The run, the options with which it is translated, the preset, and its windows from top to bottom.

    Windows are as wide as the preset says, or `width` (pixels). `prepare` uses mouse and keys before that.
    `area` is a part of the screen (WIDTHxHEIGHT+X+Y) that is taken instead of windows; without a preset there are none.
    """

    run: str
    options: str = ""
    preset: str = ""
    windows: tuple[Window, ...] = ()
    width: int = 0
    prepare: Callable[[Run], None] | None = None
    area: str = ""
    slow: tuple[int, int, float] | None = None
    """Make the kernels of a rank, from a step on, take longer by a factor, in a copy of its report."""


def zoom(run: Run) -> None:
    """Drag over a tenth of a timeline, from a tenth of its time on, and show its times in the main window."""
    timeline, main = _find_window(run, _GPUS), _find_window(run, MAIN)
    for word in ("mousemove --window {} 145 100", "mousedown 1", "mousemove --window {} 240 100", "mouseup 1"):
        run("xdotool", *word.format(timeline).split())
        time.sleep(1)
    run("xdotool", "windowraise", main, "windowsize", main, "500", "575")  # wide enough for names of properties
    time.sleep(1)
    run("xdotool", "mousemove", "--window", main, "68", "382", "click", "1")
    time.sleep(3)


def open_hints(run: Run) -> None:
    """Open the menu Hints in the upper left corner of the screen, and in it "Who waits for whom?"."""
    main = _find_window(run, MAIN)
    run("xdotool", "windowmove", main, "0", "0")
    time.sleep(1)
    run("xdotool", "mousemove", "--window", main, "60", "10", "click", "1")
    time.sleep(1)
    run("xdotool", "key", "--delay", "200", *["Down"] * 5, "Right")
    time.sleep(2)


_DDP, _SLOW, _PIPELINE = "samples/ddp-2x2", "exercises/ex1a-slow", "exercises/ex3a-pp2"
_GPUS = "Activity of the GPU of each rank"
_HALF_SECOND = "--time 1.3s:1.8s"
_ONE_LATE_STEP = "--time 4.4s:5.1s"
_KERNELS = "--steps 3:4 --sources kernels,nvtx --nvtx-domain default"
_CLASSES = (Window("Kernel time by class", 8),)
_EXPOSED = (Window("Exposed communication of each rank @"), Window("Exposed communication of each rank .ms", 4))
_BUBBLE = (
    Window("Straggler in"),
    Window("NVTX range of waits"),
    Window("Wait time in sends and receives, by straggler", 4),
)
_BY_RANGE = Window("Wait time in sends and receives, by NVTX", 4)
PICTURES = {
    "cuda_activities": Picture(_DDP, _HALF_SECOND, "views/cuda_activities", (Window("CUDA activities"),)),
    "activity_of_ranks": Picture(_DDP, _HALF_SECOND, "views/per_gpu_activity", (Window(_GPUS),)),
    "overlap": Picture(
        _DDP,
        _HALF_SECOND,
        "analysis/overlap-communication-compute-2dh-timeline",
        (Window(f"{_GPUS} @"), Window(f"{_GPUS} .%", 4)),
    ),
    "gpu_efficiency": Picture(
        _DDP,
        "--skip-warmup",
        "model/gpu_efficiency",
        (Window("Useful, comm"), Window("Useful time of each GPU", 6), Window("Active time of each GPU", 6)),
    ),
    "gpu_efficiency_by_step": Picture(
        _DDP,
        "--skip-warmup",
        "model/gpu_efficiency_by_step",
        (Window("Useful time by step", 6), Window("Active time by step", 6), Window("Length of each step", 6)),
        width=600,
    ),
    "gpu_time_by_range": Picture(
        "exercises/ex1a-fast",
        "--steps 3:4 --sources kernels,memory_operations,nvtx,nvtx_on_gpu --nvtx-domain default",
        "analysis/gpu_time_by_range",
        (
            Window("Innermost range of each operation"),
            Window("GPU time by range of depth 2", 10),
            Window("GPU time by innermost range", 10),
        ),
    ),
    "slow_steps": Picture(
        "whatif/x-uneven",
        "",
        "analysis/slow_steps",
        (
            Window("Duration of each step .ms"),
            Window("Duration of each step on the host .ms"),
            Window("Idle gaps of each step", 2),
            Window("Compute time of each step", 2),
        ),
        width=1200,
    ),
    "slow_kernels": Picture(
        _DDP, "--skip-warmup", "analysis/slow_kernels", (Window("Compute time of each step .ms"),), slow=(2, 3, 1.3)
    ),
    "activity_by_kernel_class": Picture(
        "whatif/w-shapes",
        "--steps 5:6",
        "hwcounters/activity_by_kernel_class",
        (
            Window("Kernel class of each sample"),
            Window("SMs active by", 2),
            Window("Tensor cores active by", 2),
            Window("DRAM reads and writes by", 2),
        ),
        width=700,
    ),
    "active_in_kernels": Picture(
        "whatif/w-shapes",
        "--steps 5:6",
        "hwcounters/active_in_kernels",
        (
            Window("SMs active while"),
            Window("Tensor cores active while"),
            Window("Time by SMs", 2),
            Window("Time by Te", 2),
        ),
        width=1200,
    ),
    "links_in_transfers": Picture(
        _DDP,
        "",
        "hwcounters/links_in_transfers",
        (
            Window("Communication phase of each sample"),
            Window("PCIe received by", 4),
            Window("PCIe transmitted by", 4),
            Window("NVLink received by", 4),
        ),
        width=600,
    ),
    "hints": Picture(_DDP, prepare=open_hints, area="1230x373+0+0"),
    "waited_for": Picture(
        _SLOW,
        "",
        "analysis/waited_for",
        (
            Window("Straggler"),
            Window("Root cause"),
            Window("Wait time by straggler", 4),
            Window("Wait time by root cause", 4),
        ),
        width=1200,
    ),
    "lateness": Picture(
        _SLOW,
        "",
        "analysis/lateness",
        (Window("Arrival delay of each rank"), Window("Last arrivals by", 4), Window("Total arrival delay", 4)),
        width=1200,
    ),
    "nccl_waiting": Picture(
        _SLOW,
        _ONE_LATE_STEP,
        "analysis/nccl_waiting",
        (Window("Wait and transfer of each rank @"), Window("Wait and transfer of each rank .ms", 4)),
    ),
    "exposed_communication": Picture(_SLOW, _ONE_LATE_STEP, "analysis/exposed_communication", _EXPOSED),
    "per_gpu_waits": Picture(_SLOW, _ONE_LATE_STEP, "views/per_gpu_waits", (Window(_GPUS),)),
    "pipeline_bubble": Picture(_PIPELINE, "--steps 2:3", "analysis/pipeline_bubble", (*_BUBBLE, _BY_RANGE)),
    "critical_path": Picture(_PIPELINE, "--steps 3", "analysis/critical_path", (Window("Critical path"),)),
    "critical_path_profile": Picture(
        _PIPELINE,
        "--steps 3",
        "analysis/critical_path_profile",
        (Window("Critical path of each rank"), Window("Critical path on each rank", 6)),
    ),
    "exercise_loading": Picture(_SLOW, "--steps 3:4", "analysis/gpu-gaps", (Window("Idle gaps"),)),
    "exercise_loading_host": Picture(
        _SLOW, "--steps 3:4 --sources nvtx --nvtx-domain default", "basics/nvtx", (Window("NVTX ranges @"),)
    ),
    "exercise_fp32": Picture("exercises/ex1b-fp32", _KERNELS, "analysis/kernel_classes", _CLASSES),
    "exercise_bf16": Picture("exercises/ex1a-fast", _KERNELS, "analysis/kernel_classes", _CLASSES),
    "exercise_reduced_after": Picture(
        "exercises/ex2b-manual", "--steps 3:4", "analysis/exposed_communication", _EXPOSED
    ),
    "exercise_reduced_during": Picture(
        "exercises/ex2b-overlap", "--steps 3:4", "analysis/exposed_communication", _EXPOSED
    ),
    "exercise_pipeline": Picture(_PIPELINE, "--steps 2", "analysis/pipeline_bubble", _BUBBLE),
    "case_accumulation": Picture("exercises/ex1c-accum", "--steps 2", "analysis/exposed_communication", (_EXPOSED[0],)),
    "case_zero3": Picture("exercises/ex2a-zero3", "--steps 2", "basics/nccl", (Window("NCCL kernels"),)),
    "case_mpi": Picture(
        "exercises/m-late",
        "--steps 4:5",
        "analysis/waited_for",
        (Window("Straggler"), Window("Wait time by straggler", 4)),
    ),
    "case_one_gpu": Picture("exercises/w-load", "--steps 5:6", "analysis/gpu-gaps", (Window("Idle gaps"),)),
    "case_jax": Picture(
        "exercises/jax-1",
        "--time 4.075s:4.125s --sources cuda_api,cuda_graphs",
        "views/cuda_activities",
        (Window("CUDA activities"),),
    ),
    "wxparaver_zoom": Picture(
        "exercises/ex2b-manual", "--skip-warmup", "views/per_gpu_waits", (Window(_GPUS), Window(MAIN)), prepare=zoom
    ),
}


def take(picture: Picture, target: Path) -> None:
    """Write the picture of a trace in wxParaver, which has our presets in its menu Hints."""
    with tempfile.TemporaryDirectory() as folder, _open_screen(Path(folder)) as environment:
        environment["PYTHONPATH"] = str(ROOT)
        reports = list_reports(picture.run)
        if picture.slow:
            reports = _slow_down(reports, Path(folder), *picture.slow)
        trace = f"{folder}/{Path(picture.run).name}.prv"
        subprocess.run([*PROGRAM, *reports, trace, *shlex.split(picture.options), "-q"], check=True, env=environment)
        _install_presets(Path(folder), environment)
        command = ["wxparaver", trace, *([f"{folder}/presets/{picture.preset}.cfg"] if picture.preset else [])]
        paraver = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            save(_take_parts(picture, Path(folder), environment), target)
        finally:
            paraver.terminate()
            paraver.wait()


def _slow_down(reports: list[str], folder: Path, rank: int, step: int, factor: float) -> list[str]:
    """Return the reports, with that of a rank replaced by a copy in a folder: see `Picture.slow`."""
    sys.path.insert(0, str(ROOT))
    from tests.summary.kernels.slow_modes_truth import slow_down

    copy = folder / Path(reports[rank]).name
    slow_down(Path(reports[rank]), copy, step, factor)
    return [*reports[:rank], str(copy), *reports[rank + 1 :]]


def list_reports(run: str) -> list[str]:
    """Return the paths of a run's reports, which are samples, exercises, or in ../shared/reports."""
    find_exercises()
    found = [*ROOT.glob(f"{run}.rank*.sqlite")] or _FURTHER.glob(f"{run}.rank*.sqlite")
    return sorted(map(str, found))


def _install_presets(folder: Path, environment: dict[str, str]) -> None:
    """Write the presets to FOLDER/presets, and their menus to the home of wxParaver's user."""
    command = [*PROGRAM, "cfgs", "--install", f"{folder}/presets"]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    settings = Path(environment["HOME"], ".paraver")
    settings.mkdir()
    shutil.copy(folder / "presets/workspaces.xml", settings)


def _take_parts(picture: Picture, folder: Path, environment: dict[str, str]) -> list[Path]:
    """Return files with the parts of the picture, from top to bottom."""

    def run(*command: str) -> str:
        return subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout

    windows = [_find_window(run, window.title) for window in picture.windows or [Window(MAIN)]]
    time.sleep(5)  # the windows are there before they are drawn
    if picture.prepare:
        picture.prepare(run)
    if picture.area:
        run("import", "-window", "root", "-crop", picture.area, "+repage", f"{folder}/area.png")
        return [folder / "area.png"]
    parts = [folder / f"{number}.png" for number in windows]
    for window, number, part in zip(picture.windows, windows, parts, strict=True):
        if picture.width:
            _widen(run, number, picture.width)
        run("xdotool", "windowraise", number)
        time.sleep(1)
        run("import", "-window", number, str(part))
        if window.rows:  # without the buttons above, and what is below
            run("convert", str(part), "-crop", f"x{37 + 23 * window.rows}+0+44", "+repage", str(part))
    return parts


def _widen(run: Run, window: str, width: int) -> None:
    """Make a window that wide, and as high as it was."""
    places = dict(line.split("=") for line in run("xdotool", "getwindowgeometry", "--shell", window).splitlines())
    run("xdotool", "windowsize", window, str(width), places["HEIGHT"])
    time.sleep(3)


def _find_window(run: Run, title: str) -> str:
    """Return the number of a window that is on the screen, as soon as it is."""
    # A search fails if a window vanishes under it.
    search = 'until xdotool search --onlyvisible --name "$0" 2>/dev/null; do sleep 0.5; done'
    return run("timeout", str(_SECONDS), "sh", "-c", search, f"^{title}").split()[0]


def save(parts: Sequence[Path], target: Path) -> None:
    """Write parts below each other as a picture of few colours."""
    command = ["convert", *map(str, parts), "-append", "+dither", "-colors", "128", "-strip", str(target)]
    subprocess.run(command, check=True)


@contextmanager
def _open_screen(folder: Path) -> Iterator[dict[str, str]]:
    """Start a screen and a window manager; yield the environment of programs on it, with a new home."""
    reader, writer = os.pipe()
    command = ["Xvfb", "-displayfd", str(writer), "-screen", "0", "1600x1200x24"]
    screen = subprocess.Popen(command, pass_fds=[writer], stderr=subprocess.DEVNULL)
    os.close(writer)
    try:
        with os.fdopen(reader) as numbers:
            environment = {**os.environ, "DISPLAY": f":{numbers.readline().strip()}"}
        home = folder / "home"
        home.mkdir()
        environment["HOME"] = str(home)
        manager = subprocess.Popen(["openbox"], env=environment, stderr=subprocess.DEVNULL)
        try:
            yield environment
        finally:
            manager.terminate()
            manager.wait()
    finally:
        screen.terminate()
        screen.wait()


def take_named(
    names: Sequence[str], pictures: Mapping[str, AnyPicture], write: Callable[[AnyPicture, Path], None]
) -> int:
    """Take the named pictures, or all, to docs/pictures/NAME.png; return the exit code."""
    if unknown := sorted(set(names) - set(pictures)):
        print(f"no picture {unknown[0]}; there are {', '.join(pictures)}", file=sys.stderr)
        return 2
    for name in names or pictures:
        write(pictures[name], ROOT / f"docs/pictures/{name}.png")
        print(f"wrote: docs/pictures/{name}.png", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(take_named(sys.argv[1:], PICTURES, take))
