"""The Python interface: translate, shard, merge, summarize, compare, inspect and check reports and traces.

Keywords are the options of the commands, as options.py declares them, with times in ns and sizes in bytes. Every call
prints nothing and raises TranslationError with one line of text: UsageError for what was asked for, ReportError for a
report that cannot be read.
"""

from nsys2prv_ng.api.calls import check, compare, inspect, summarize, translate
from nsys2prv_ng.api.shards import merge, shard

__all__ = ["check", "compare", "inspect", "merge", "shard", "summarize", "translate"]
