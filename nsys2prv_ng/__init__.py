"""Translate Nsight Systems reports into Paraver traces: translate(["rank0.nsys-rep", "rank1.nsys-rep"], "job.prv")."""

from nsys2prv_ng.errors import ReportError, TranslationError, UsageError
from nsys2prv_ng.library import translate

__all__ = ["ReportError", "TranslationError", "UsageError", "translate"]
__version__ = "0.1.0"
