"""Describes how nsys traced CUDA graphs (its option --cuda-graph-trace), and what is unknown about opaque graphs.

A graph that was traced as a whole is one operation on its stream: nsys does not record which kernels ran in it, or
when.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nsys2prv_ng.text.formatting import count_noun

KINDS = BY_NODE, AS_WHOLE = "by node", "as a whole"

REMEDY = "capture every rank with --cuda-graph-trace=node of nsys"


def warn_of_mixed_graphs(traced: Iterable[Sequence[str]]) -> list[str]:
    """Return a warning if graphs were traced in both ways. `traced`: for each report, BY_NODE, AS_WHOLE or both."""
    reports = list(traced)
    by_node, as_whole = (sum(kind in kinds for kinds in reports) for kind in (BY_NODE, AS_WHOLE))
    if not by_node or not as_whole:
        return []
    how = f"by node in {count_noun(by_node, 'report')} and as a whole in {as_whole:,}"
    return [f"nsys traced CUDA graphs {how}, where their kernels are not known: {REMEDY}"]
