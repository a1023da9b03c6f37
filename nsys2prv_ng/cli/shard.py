"""The command shard."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from nsys2prv_ng import api
from nsys2prv_ng.cli.options import NoProgress, describe_argument, with_options
from nsys2prv_ng.errors import UsageError, escape_unprintable
from nsys2prv_ng.options.calls import ShardOptions
from nsys2prv_ng.report.formats import REPORTS_HELP
from nsys2prv_ng.text.formatting import count_noun


@with_options(ShardOptions)
def shard(
    paths: Annotated[
        list[Path], describe_argument("REPORT... FOLDER", f"{REPORTS_HELP}, then the folder for their contents.")
    ],
    options: ShardOptions,
    quiet: NoProgress = False,
) -> None:
    """Read reports into a folder, to share the work among nodes.

    Each node of a job can read its own reports. translate, summary, compare and merge accept the folder instead of
    reports.
    """
    *reports, folder = paths
    if not reports:
        raise UsageError(f"no report to read into {folder}: nsys2prv-ng shard REPORT... FOLDER")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file; the last argument must be the folder to read reports into")
    api.shard(reports, folder, **vars(options))
    if not quiet:
        from nsys2prv_ng.reading.shards import find_shards

        where = shlex.quote(str(folder))
        there = count_noun(len(find_shards([folder])), "report")
        print(escape_unprintable(f"{folder}: now has {there}; nsys2prv-ng merge {where} OUT.prv"))
