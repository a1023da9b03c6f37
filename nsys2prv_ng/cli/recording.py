"""The commands that run a program under nsys: run-rank in a job, record on one machine.

Every rank of a job waits for this module, so it imports nothing that takes long.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Annotated

import typer

from nsys2prv_ng.cli.options import with_options
from nsys2prv_ng.cli.run import COMMAND_BEHIND, SETTINGS, run_app
from nsys2prv_ng.recording import record as recorder
from nsys2prv_ng.recording.options import RankOptions, RecordingOptions

Program = Annotated[
    list[str], typer.Argument(metavar="[--] COMMAND...", help="The program and its arguments.", show_default=False)
]


@with_options(RankOptions)
def run_rank(command: Program, options: RankOptions) -> int:
    """Run one rank of a job under nsys: srun nsys2prv-ng run-rank -- python train.py.

    Stands between any launcher and the program. Each rank writes DIR/rankN.nsys-rep. The program gets all signals and
    its whole environment, of which the report keeps little, and its exit status is that of this command.
    """
    return recorder.run_rank(options, command)


@with_options(RecordingOptions)
def record(command: Program, options: RecordingOptions) -> int:
    """Run a program under nsys on this machine, then print its summary: nsys2prv-ng record -- python train.py."""
    folder = recorder.choose_folder(options, f"profile-{time.strftime('%Y%m%d-%H%M%S')}")
    recorder.say(options.describe_window())
    code = recorder.record(options, command, os.environ, folder)
    if reports := list(folder.glob("*.nsys-rep")):
        recorder.say(f"the report is {reports[0]}")
        subprocess.run([sys.executable, "-m", "nsys2prv_ng", "summary", "--quiet", *reports], check=False)
    return code


app = typer.Typer(**SETTINGS)
app.command(**COMMAND_BEHIND)(run_rank)
app.command(**COMMAND_BEHIND)(record)


def run(words: list[str]) -> tuple[int, str]:
    """Run one of these commands; return the exit code and the line for an error. Raises that of a signal."""
    return run_app(app, words)
