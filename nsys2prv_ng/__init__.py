"""Translate Nsight Systems reports into Paraver traces: translate(["rank0.nsys-rep", "rank1.nsys-rep"], "job.prv")."""

from nsys2prv_ng.api import translate
from nsys2prv_ng.errors import ReportError, TranslationError, UsageError
from nsys2prv_ng.version import __version__

__all__ = ["ReportError", "TranslationError", "UsageError", "__version__", "translate"]
