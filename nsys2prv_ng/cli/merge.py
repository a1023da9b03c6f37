"""The command merge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from nsys2prv_ng import api
from nsys2prv_ng.cli.options import Quiet, describe_argument, with_options
from nsys2prv_ng.cli.printing import print_result, print_summary
from nsys2prv_ng.options.calls import MergeOptions


@with_options(MergeOptions)
def merge(
    folder: Annotated[Path, describe_argument("FOLDER", "The folder that `shard` filled.")],
    output: Annotated[Path, describe_argument("OUT.prv", "The trace (.prv or .prv.gz).")],
    options: MergeOptions,
    quiet: Quiet = False,
) -> None:
    """Write one trace from a folder that `shard` filled.

    Runs at once, or as separate jobs: --only plan, then --only write for each part, then --only join. The options of
    the trace belong to the plan.
    """
    result = api.merge(folder, output, **vars(options))
    if result is not None and not quiet:
        print_result(result, options, {})
        print_summary(result)
