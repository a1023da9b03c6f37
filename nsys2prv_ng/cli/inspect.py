"""The command inspect."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from nsys2prv_ng import api
from nsys2prv_ng.cli.options import Json, NoProgress, ReportsArgument, with_options
from nsys2prv_ng.cli.printing import print_json, print_remedies
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.options.calls import InspectOptions

if TYPE_CHECKING:
    from nsys2prv_ng.inspection.model import Inspection

_FILE_WIDTH = 100
"""Width of a line (characters) if the output is not a terminal."""


@with_options(InspectOptions)
def inspect(
    reports: ReportsArgument, options: InspectOptions, as_json: Json = False, quiet: NoProgress = False
) -> None:
    """Show what reports contain.

    Exits with code 1 if a report cannot be read or translated.
    """
    inspection = api.inspect(reports, **vars(options))
    from nsys2prv_ng.inspection.text import escape_text, format_inspection

    if as_json:
        print_json(inspection)
    elif inspection.reports or len(inspection.faults) != 1:  # else the error is all there is
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _FILE_WIDTH
        print(format_inspection(inspection, width))
        _print_remedies(inspection, options.paraver_memory)
    if inspection.faults:
        others = len(inspection.faults) - 1
        more = f" (and {others} more, listed above)" if others else ""
        raise TranslationError(escape_text(inspection.faults[0]) + more)


def _print_remedies(inspection: Inspection, limit: int) -> None:
    """Print how to translate less, if Paraver needs more than `limit` bytes of memory for a trace of all of it."""
    from nsys2prv_ng.inspection.model import estimate_details
    from nsys2prv_ng.paraver.load_cost import LoadCost

    load, estimated = inspection.load, estimate_details(inspection.rows_of_sources)
    details = {source: estimated.get(source, LoadCost()) for source in inspection.list_selectable_sources()}
    duration = max((report.duration_ns for report in inspection.reports), default=0)
    if 0 < limit < load.memory:
        print()
    print_remedies(load, details, limit, size=load.text_bytes, duration=duration)
