"""The Python interface: translate, shard, summarize, compare, inspect and open reports, predict, and check traces.

Keywords are the options of the commands, as options/ declares them, with times in ns and sizes in bytes. Calls
print nothing. They raise TranslationError with one line of text: UsageError for a wrong request, ReportError for a
report that cannot be read.
"""

from nsys2prv_ng.api.calls import check, compare, inspect, shard, summarize, translate, what_if
from nsys2prv_ng.api.tables import export, open

__all__ = ["check", "compare", "export", "inspect", "open", "shard", "summarize", "translate", "what_if"]
