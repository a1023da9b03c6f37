"""Every option of every call and command: its name, type, default, help and check, declared once.

api/ takes the fields of these classes as keywords, cli/options.py makes the options of the commands from them, and
the reference in docs/ is generated from those. Times are ns, sizes are bytes. Each class raises UsageError, naming the
parameter, for values that make no sense.
"""

from nsys2prv_ng.options.job import CompareOptions, InspectOptions, JobOptions, ReadingOptions, SummaryOptions
from nsys2prv_ng.options.trace import EventOptions, MergeOptions, ShardOptions, TraceOptions, TranslateOptions
from nsys2prv_ng.options.written import CheckOptions, CutOptions

ALL_OPTIONS = (
    TranslateOptions,
    ShardOptions,
    MergeOptions,
    SummaryOptions,
    CompareOptions,
    InspectOptions,
    CheckOptions,
    CutOptions,
)
"""The options of all calls."""

__all__ = [
    "ALL_OPTIONS",
    "CheckOptions",
    "CompareOptions",
    "CutOptions",
    "EventOptions",
    "InspectOptions",
    "JobOptions",
    "MergeOptions",
    "ReadingOptions",
    "ShardOptions",
    "SummaryOptions",
    "TraceOptions",
    "TranslateOptions",
]
