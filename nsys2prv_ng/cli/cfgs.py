"""The command cfgs."""

from __future__ import annotations

import shutil
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from nsys2prv_ng.cli.options import parse_folder
from nsys2prv_ng.errors import escape_unprintable


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
