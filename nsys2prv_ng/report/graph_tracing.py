"""How nsys traced CUDA graphs (its option --cuda-graph-trace), and what is not known where it did so as a whole.

A graph that was traced as a whole is one operation on its stream: which kernels ran in it, and when, is not recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from nsys2prv_ng.text.formatting import count_noun

if TYPE_CHECKING:
    from nsys2prv_ng.report.metadata import Metadata

KINDS = BY_NODE, AS_WHOLE = "by node", "as a whole"

REMEDY = "capture every rank with --cuda-graph-trace=node of nsys"


def may_hide_nccl(reports: Iterable[Metadata]) -> bool:
    """Return whether kernels of NCCL may be in graphs that were traced as a whole: any report of the job has NCCL.

    What one process captured into a graph may be all that it does with NCCL, so other reports count as well.
    """
    return any(metadata.uses_nccl for metadata in reports)


def warn_of_mixed_graphs(traced: Iterable[Sequence[str]]) -> list[str]:
    """Return a warning if graphs were traced in both ways. `traced`: how, in each report, BY_NODE and AS_WHOLE."""
    reports = list(traced)
    by_node, as_whole = (sum(kind in own for own in reports) for kind in (BY_NODE, AS_WHOLE))
    if not by_node or not as_whole:
        return []
    how = f"by node in {count_noun(by_node, 'report')} and as a whole in {as_whole:,}"
    return [f"nsys traced CUDA graphs {how}, where their kernels are not known: {REMEDY}"]
