"""The command merge."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated

from nsys2prv_ng import api
from nsys2prv_ng.cli.options import Quiet, describe_argument, with_options
from nsys2prv_ng.options.calls import JobOptions, MergeOptions, TranslateOptions


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
    if result is None or quiet:
        return
    from nsys2prv_ng.cli.remedies import Given, print_result, print_summary

    shared = {field.name: getattr(options, field.name) for field in fields(JobOptions)}
    chosen = TranslateOptions(**shared, paraver_memory=options.paraver_memory)
    print_result(result, Given([folder], output, chosen, []))
    print_summary(result)
