"""Takes pictures of wxParaver for the guides, on a virtual screen: python docs/photograph.py [NAME...]

The traces are those of the exercises.
`wxparaver`, `Xvfb`, `openbox`, `xdotool` and ImageMagick's `import` and `convert` must be in PATH.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from exercises import ROOT, find_exercises

_MAIN = "Paraver$"
"""wxParaver's main window."""
_SECONDS = 60
"""Time that a window may take to appear."""


@dataclass(frozen=True)
class Window:
    """A part of a picture: how the title of a window begins (a regular expression), and the rows of a histogram."""

    title: str
    rows: int = 0


@dataclass(frozen=True)
class Picture:
    """The run, the options with which it is translated, the preset, and its windows from top to bottom.

    A window in which to drag gets a zoom first, from a tenth to two tenths of its time.
    """

    run: str
    options: str
    preset: str
    windows: tuple[Window, ...]
    zoom: str = ""


_KERNELS = "--steps 3:4 --sources kernels,nvtx --nvtx-domain default"
_CLASSES = (Window("Time in classes of kernels", 8),)
_EXPOSED = (Window("Exposed communication of each rank @"), Window("Exposed communication of each rank .ms", 4))
PICTURES = {
    "exercise_loading": Picture("ex1a-slow", "--steps 3:4", "analysis/gpu-gaps", (Window("Idle stretches"),)),
    "exercise_loading_host": Picture(
        "ex1a-slow", "--steps 3:4 --sources nvtx --nvtx-domain default", "basics/nvtx", (Window("NVTX ranges @"),)
    ),
    "exercise_fp32": Picture("ex1b-fp32", _KERNELS, "analysis/kernel_classes", _CLASSES),
    "exercise_bf16": Picture("ex1a-fast", _KERNELS, "analysis/kernel_classes", _CLASSES),
    "exercise_reduced_after": Picture("ex2b-manual", "--steps 3:4", "analysis/exposed_communication", _EXPOSED),
    "exercise_reduced_during": Picture("ex2b-overlap", "--steps 3:4", "analysis/exposed_communication", _EXPOSED),
    "exercise_pipeline": Picture(
        "ex3a-pp2",
        "--steps 2",
        "analysis/pipeline_bubble",
        (
            Window("Rank waited for in"),
            Window("NVTX range that waits"),
            Window("Time waited in sends and receives, by rank", 4),
        ),
    ),
    "wxparaver_zoom": Picture(
        "ex2b-manual",
        "--skip-warmup",
        "views/per_gpu_waits",
        (Window("Activity of the GPU of each rank"), Window(_MAIN)),
        zoom="Activity of the GPU of each rank",
    ),
}


def take(name: str, picture: Picture) -> None:
    """Write docs/pictures/NAME.png."""
    with tempfile.TemporaryDirectory() as folder, _open_screen(Path(folder)) as environment:
        environment["PYTHONPATH"] = str(ROOT)
        program = [sys.executable, "-m", "nsys2prv_ng"]
        reports = sorted(map(str, find_exercises().glob(f"{picture.run}.rank*.sqlite")))
        trace = f"{folder}/{picture.run}.prv"
        subprocess.run([*program, *reports, trace, *shlex.split(picture.options), "-q"], check=True, env=environment)
        cfg = ROOT / "cfgs" / f"{picture.preset}.cfg"
        paraver = subprocess.Popen(["wxparaver", trace, cfg], env=environment, stderr=subprocess.DEVNULL)
        try:
            _take_windows(picture, Path(folder), environment, ROOT / f"docs/pictures/{name}.png")
        finally:
            paraver.terminate()
            paraver.wait()


def _take_windows(picture: Picture, folder: Path, environment: dict[str, str], target: Path) -> None:
    def run(*command: str) -> str:
        return subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout

    windows = {window.title: _find_window(run, window.title) for window in picture.windows}
    time.sleep(5)  # the windows are there before they are drawn
    if picture.zoom:
        _zoom(run, windows[picture.zoom], windows[_MAIN])
    parts: list[str] = []
    for window in picture.windows:
        parts.append(f"{folder}/{len(parts)}.png")
        run("xdotool", "windowraise", windows[window.title])
        time.sleep(1)
        run("import", "-window", windows[window.title], parts[-1])
        if window.rows:  # without the buttons above, and the totals below
            run("convert", parts[-1], "-crop", f"x{37 + 23 * window.rows}+0+44", "+repage", parts[-1])
    run("convert", *parts, "-append", "+dither", "-colors", "128", "-strip", str(target))


def _zoom(run: Callable[..., str], timeline: str, main: str) -> None:
    """Drag over a tenth of a timeline, and show its times among the properties of the main window."""
    for word in ("mousemove --window {} 145 100", "mousedown 1", "mousemove --window {} 240 100", "mouseup 1"):
        run("xdotool", *word.format(timeline).split())
        time.sleep(1)
    run("xdotool", "windowraise", main, "windowsize", main, "500", "575")  # wide enough for names of properties
    time.sleep(1)
    run("xdotool", "mousemove", "--window", main, "68", "382", "click", "1")
    time.sleep(3)


def _find_window(run: Callable[..., str], title: str) -> str:
    """Return the number of a window that is on the screen, as soon as it is."""
    # A search fails if a window vanishes under it.
    search = 'until xdotool search --onlyvisible --name "$0" 2>/dev/null; do sleep 0.5; done'
    return run("timeout", str(_SECONDS), "sh", "-c", search, f"^{title}").split()[0]


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


def main(names: list[str]) -> int:
    """Take the named pictures, or all; return the exit code."""
    if unknown := sorted(set(names) - set(PICTURES)):
        print(f"no picture {unknown[0]}; there are {', '.join(PICTURES)}", file=sys.stderr)
        return 2
    for name in names or PICTURES:
        take(name, PICTURES[name])
        print(f"wrote: docs/pictures/{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
