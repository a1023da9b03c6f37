"""The command what-if."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from nsys2prv_ng import api
from nsys2prv_ng.cli.options import Json, NoProgress, describe_argument, with_options
from nsys2prv_ng.cli.printing import print_json
from nsys2prv_ng.options.calls import PredictionOptions
from nsys2prv_ng.paraver.files import is_trace
from nsys2prv_ng.report.formats import REPORTS_HELP


@with_options(PredictionOptions)
def what_if(
    paths: Annotated[
        list[Path],
        describe_argument("REPORT... [OUT.prv]", f"{REPORTS_HELP}, then optionally the predicted trace to write."),
    ],
    options: PredictionOptions,
    as_json: Json = False,
    quiet: NoProgress = False,
) -> None:
    """Predict what a change would save before you make it.

    Replays the job with each change: a range, call, kernel or kernel class that takes no time or another time, an ideal
    network, a rank like the others.
    """
    *reports, last = paths
    output = last if reports and is_trace(last) else None
    numbers = api.what_if(paths if output is None else reports, output=output, **vars(options))
    if as_json:
        print_json(numbers)
    else:
        from nsys2prv_ng.summary.what_if import format_what_if

        print(format_what_if(numbers))
