"""Translate Nsight Systems reports into Paraver traces.

import nsys2prv_ng

result = nsys2prv_ng.translate(["rank0.nsys-rep", "rank1.nsys-rep"], "job.prv")
"""

TYPE_CHECKING = False  # as type checkers know it; to import `typing` delays the command line's handling of signals

if TYPE_CHECKING:
    from nsys2prv_ng.api.calls import check, compare, inspect, shard, summarize, translate, what_if
    from nsys2prv_ng.api.tables import OpenJob, export, open
    from nsys2prv_ng.comparison.result import Comparison
    from nsys2prv_ng.errors import ReportError, TranslationError, UsageError
    from nsys2prv_ng.inspection.model import Inspection
    from nsys2prv_ng.paraver.checker.trace import CheckResult
    from nsys2prv_ng.replay.numbers import WhatIfNumbers
    from nsys2prv_ng.summary.job import JobSummary
    from nsys2prv_ng.translation.result import TranslationResult
    from nsys2prv_ng.version import __version__

__all__ = [
    "CheckResult", "Comparison", "Inspection", "JobSummary", "OpenJob", "ReportError", "TranslationError",
    "TranslationResult", "UsageError", "WhatIfNumbers", "__version__",
    "check", "compare", "export", "inspect", "open", "shard", "summarize", "translate", "what_if",
]  # fmt: skip

_HOMES = {
    "CheckResult": "paraver.checker.trace",
    "Comparison": "comparison.result",
    "Inspection": "inspection.model",
    "JobSummary": "summary.job",
    "OpenJob": "api.tables",
    "ReportError": "errors",
    "TranslationError": "errors",
    "TranslationResult": "translation.result",
    "UsageError": "errors",
    "WhatIfNumbers": "replay.numbers",
    "__version__": "version",
}
"""The modules of names that are not calls."""


def __getattr__(name: str) -> object:
    """Import a name when it is first used: the command line handles signals before it imports what takes long."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'api')}"), name)


def __dir__() -> list[str]:
    return __all__
