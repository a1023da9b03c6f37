"""The commands that prepare other programs: cfgs for Paraver, slurm for a job, precompile for all later runs."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from nsys2prv_ng.bundled.job_script import ScriptOptions, choose_form, render_script
from nsys2prv_ng.cli.options import parse_folder, with_options
from nsys2prv_ng.errors import TranslationError, escape_unprintable


def cfgs(
    install: Annotated[
        Path | None,
        typer.Option(metavar="DIR", parser=parse_folder, help="Copy the presets and filters into this folder."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """List or copy the presets (.cfg) and filters (.xml) for Paraver."""
    from nsys2prv_ng.bundled.presets import WORKSPACES, install_presets, list_filters, list_presets

    if install is not None:
        copies = install_presets(install, force=force)
        filters = len(list_filters())
        shown = Path(escape_unprintable(str(install)))
        print(f"{shown}: {len(copies) - filters} presets; open them in wxParaver with File, Load Configuration")
        print(f"{shown / 'filters'}: {filters} files for Paraver's own filter, which make a trace smaller")
        print(f"{shown / WORKSPACES}: copy it to ~/.paraver/ to have them in wxParaver's menu Hints")
        return
    presets = [*list_presets(), *(replace(file, name=f"{file.name}.xml") for file in list_filters())]
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        for preset in presets:
            print(preset.name)
            print(textwrap.fill(preset.summary, width, initial_indent="    ", subsequent_indent="    "))
    else:  # one line per preset, for programs
        names = max(len(preset.name) for preset in presets)
        for preset in presets:
            print(f"{preset.name.ljust(names)}  {preset.summary}")


@with_options(ScriptOptions)
def slurm(
    options: ScriptOptions,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[--] [COMMAND...]", help="What each task runs.", show_default="python train.py"),
    ] = None,
) -> None:
    """Print a Slurm batch script that profiles a job.

    The job leaves the reports, the summary and an HTML report, and prints the summary. Submit the script with sbatch.
    """
    job, note = choose_form(replace(options, command=command or ()))
    script = render_script(job)
    if note:
        print(note, file=sys.stderr)
    print(script, end="")


def precompile() -> None:
    """Compile all numba kernels now, so that no later run has to. For a site: once, as the user who installed.

    The machine code stays beside the program, or in $NUMBA_CACHE_DIR, or else in the user's cache folder.
    """
    from nsys2prv_ng.runtime.precompile import compile_all, find_folder

    folder = find_folder()
    if folder is None:
        raise TranslationError("no folder to keep machine code; set NUMBA_CACHE_DIR to one that only you can write")
    start = time.monotonic()
    kernels = compile_all()
    when = f"compiled in {time.monotonic() - start:.0f} s" if kernels.compiled else "compiled before"
    print(escape_unprintable(f"{kernels.total} kernels {when}; their machine code is in {folder}"))
