"""The command slurm."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer

from nsys2prv_ng.bundled.job_script import ScriptOptions, choose_form, render_script
from nsys2prv_ng.cli.options import with_options


@with_options(ScriptOptions)
def slurm(
    options: ScriptOptions,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[--] [COMMAND...]", help="What each task runs.", show_default="python train.py"),
    ] = None,
) -> None:
    """Print a Slurm batch script that profiles a job.

    The job leaves the trace, the summary and an HTML report, and prints the summary. Submit the script with sbatch.
    """
    job, note = choose_form(replace(options, command=command or ()))
    script = render_script(job)
    if note:
        print(note, file=sys.stderr)
    print(script, end="")
