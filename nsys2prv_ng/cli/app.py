"""Puts the commands together."""

from __future__ import annotations

from typing import Annotated

import typer

from nsys2prv_ng.cli.cfgs import cfgs
from nsys2prv_ng.cli.check import check
from nsys2prv_ng.cli.compare import SidesCommand, compare
from nsys2prv_ng.cli.inspect import inspect
from nsys2prv_ng.cli.merge import merge
from nsys2prv_ng.cli.precompile import precompile
from nsys2prv_ng.cli.shard import shard
from nsys2prv_ng.cli.slurm import slurm
from nsys2prv_ng.cli.summary import summary
from nsys2prv_ng.cli.translate import translate
from nsys2prv_ng.cli.what_if import what_if
from nsys2prv_ng.cli.words import CompletedGroup
from nsys2prv_ng.version import __version__

# Numba, pyarrow and json are imported where they are used, so that --help and usage errors come at once.

app = typer.Typer(
    cls=CompletedGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"nsys2prv-ng {__version__}")
        raise typer.Exit


@app.callback(
    epilog="If the first word is not a command, it is the first report: nsys2prv-ng REPORT... OUT.prv translates."
    " Options: nsys2prv-ng translate --help."
)
def _common(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Translate NVIDIA Nsight Systems reports of every rank of a job into one Paraver trace."""


app.command()(translate)
app.command()(summary)
app.command()(what_if)
app.command(cls=SidesCommand)(compare)
app.command()(inspect)
app.command()(check)
app.command()(cfgs)
app.command()(precompile)
app.command()(shard)
app.command()(merge)
app.command(context_settings={"allow_interspersed_args": False})(slurm)
