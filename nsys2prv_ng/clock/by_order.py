"""Checks operations that were matched by their order alone, because the export has no payload of NCCL calls.

Kernels of several communicators may follow each other in the same order on all ranks. Then the k-th kernels of two
nodes are unrelated. So kernels count as evidence only if they behave like the kernels of one communicator: with the
best clocks for them, no rank leaves before all have entered, and all leave at about the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nsys2prv_ng.arrays.row_keys import take_groups
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.clock.causality import find_violations
from nsys2prv_ng.clock.fit import fit_sets, make_lines
from nsys2prv_ng.clock.matches import Matches, list_crossings, match_evidence, match_reports
from nsys2prv_ng.operations.matching import Operations
from nsys2prv_ng.operations.parts import Evidence

LEAST_CAUSAL = 0.99
"""Least share of the operations in which no rank left before all had entered.

A choice: the rest is room for the error of a fit. If it is too large, kernels of different communicators are evidence.
"""

MOST_RESIDUAL_NS = 100e3
"""Largest median distance of ends. Real collectives have up to 13 us, kernels of different communicators 2,300 us."""


def match_by_node(
    evidence: Sequence[Evidence], domains: Sequence[int], offsets: Sequence[int]
) -> tuple[Operations, Matches]:
    """Match the evidence of all reports; by order alone, match only kernels that may belong to one communicator.

    Other kernels are matched within each node. Arguments and result are as in `match_evidence`; `unlike` of the
    matches counts the rejected operations over nodes.
    """
    operations, matches = match_evidence(evidence, domains, offsets)
    unlike = _find_unlike(operations, matches, max(domains, default=0) + 1)
    if not unlike.size:
        return operations, matches
    leader = operations.leader[np.isin(operations.group, unlike)]
    used = np.unique(operations.table.communicator[leader])
    names = {operations.table.communicators[number] for number in used.tolist()}
    apart = [_name_by_node(part, domain, names) for part, domain in zip(evidence, domains, strict=True)]
    operations, rest = match_evidence(apart, domains, offsets)
    return operations, replace(rest, unlike=int(np.isin(matches.group, unlike).sum()))


def _name_by_node(evidence: Evidence, domain: int, names: set[str]) -> Evidence:
    """Return the evidence of a report on a node, with the named communicators renamed for this node alone."""
    tables = [
        table._replace(communicators=[f"{n} of node {domain}" if n in names else n for n in table.communicators])
        for table in evidence.collectives
    ]
    return replace(evidence, collectives=tables)


def _find_unlike(operations: Operations, matches: Matches, domains: int) -> IntArray:
    """Return the groups that were matched by order over nodes and do not behave like one communicator."""
    known = operations.table.has_communicator[operations.leader] if len(operations) else np.zeros(0, np.bool_)
    rejected = []
    for group in np.unique(operations.group[~known]).tolist():
        is_unlike = not _behaves(_show_entering(operations, group), domains)
        if is_unlike and (matches.group == group).any():
            rejected.append(group)
    return np.array(rejected, np.int64)


def _show_entering(operations: Operations, group: int) -> Matches:
    """Return the operations of a group as if their communicator were known."""
    is_member = operations.group == group
    first, rows = take_groups(operations.first, np.flatnonzero(is_member))
    table = operations.table
    part = Operations(
        table=table._replace(has_communicator=np.ones(table.kind.size, np.bool_)),
        first=first,
        group=operations.group[is_member],
        members=operations.members[is_member],
        part=operations.part[rows],
    )
    return match_reports(list_crossings(part))


def _behaves(matches: Matches, domains: int) -> bool:
    """Return whether operations between domains behave like operations of one communicator."""
    fits = fit_sets(matches, [str(domain) for domain in range(domains)], always=True)
    if any((fit.median > MOST_RESIDUAL_NS).any() for fit in fits):
        return False
    violations = find_violations(matches, make_lines(domains, fits))
    return violations.broken <= (1 - LEAST_CAUSAL) * violations.checked
