"""Aligns the clocks of all reports by plain UTC, by collectives and messages, or by a file.

If an export has no payload of NCCL calls, operations are matched by their order alone. Kernels of several communicators
may follow each other in the same order on all ranks: then the k-th kernels of two nodes are unrelated. So kernels count
as evidence only if they behave like the kernels of one communicator: with the best clocks for them, no rank leaves
before all have entered, and all leave at about the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path

import numpy as np

from nsys2prv_ng.arrays.row_keys import take_groups
from nsys2prv_ng.arrays.types import FloatArray, IntArray
from nsys2prv_ng.clock import matches as node_matches
from nsys2prv_ng.clock.alignment_table import Alignment, NodeClock, read_table
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.clock.chains import fit_clocks
from nsys2prv_ng.clock.fit import UTC, ClockFit, fit_sets, make_lines
from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.operations.matching import Operations
from nsys2prv_ng.operations.parts import Evidence
from nsys2prv_ng.report.export_settings import FARTHEST, SYSTEM, describe_payload_remedy
from nsys2prv_ng.value_class import ValueClass

AUTO, PLAIN_UTC, COLLECTIVES, NONE = "auto", "utc", "collectives", "none"
WAYS = (AUTO, PLAIN_UTC, COLLECTIVES, NONE)


class ReportClock(ValueClass):
    """A report's clock: the index of its node, the UTC (ns) of its time 0 if known, and its evidence.

    `clock`: the clock of its times, the same for all reports of a node; `schema_version`: the version of its export.
    """

    node: int
    utc_of_zero: int | None
    evidence: Evidence = field(default_factory=Evidence)
    clock: str = SYSTEM
    schema_version: str = ""


def parse_alignment(text: str) -> str | Path:
    """Return one of WAYS, or the path of a file that must exist. Raises UsageError for anything else."""
    if text in WAYS:
        return text
    path = Path(text)
    if path.is_file():
        return path
    message = f"must be one of {', '.join(WAYS)}, or a file of clocks that an earlier translation wrote"
    raise UsageError(message, parameter="align", value=text)


def uses_collectives(way: str | Path) -> bool:
    """Return whether the reports must provide their collectives."""
    return way in (AUTO, COLLECTIVES)


def match_reports_on_utc(reports: Sequence[ReportClock]) -> tuple[Operations, node_matches.Matches]:
    """Return the collectives of all reports and the evidence on clocks; times count from the first report."""
    _, offsets = find_offsets(reports)
    return match_by_node([r.evidence for r in reports], [r.node for r in reports], offsets)


def find_offsets(reports: Sequence[ReportClock]) -> tuple[int, list[int]]:
    """Return the earliest time 0 of any report (UTC, ns), and the offset (ns) of each report from it."""
    base = min((r.utc_of_zero for r in reports if r.utc_of_zero), default=0)
    return base, [0 if r.utc_of_zero is None else r.utc_of_zero - base for r in reports]


def align_clocks(
    way: str | Path, reports: Sequence[ReportClock], names: Sequence[str], matches: node_matches.Matches | None = None
) -> tuple[Alignment, list[ClockMap]]:
    """Return the corrections of the nodes with these names, and the map of each report to the common clock.

    `matches`: the result of `match_reports_on_utc`, if it was called already. The common clock counts ns from the UTC
    `Alignment.utc_base`. Raises TranslationError for a file that cannot be read or contains impossible corrections.
    """
    base, offsets = find_offsets(reports)
    clocks = {names[report.node]: report.clock for report in reports}
    nodes = [NodeClock(name, clock=clocks.get(name, SYSTEM)) for name in names]
    if way == NONE:  # every report starts at 0
        return Alignment(NONE, base, nodes), [ClockMap() for _ in reports]
    alignment = Alignment(PLAIN_UTC, base, nodes)
    if isinstance(way, Path):
        alignment = _read_alignment(way, base, nodes)
    if len(names) > 1:
        if matches is None:
            _, matches = match_reports_on_utc(reports)
        if uses_collectives(way):
            alignment = fit_from_matches(str(way), matches, base, names, nodes)
            if matches.unlike:
                alignment.warnings.append(
                    f"{matches.unlike:,} collectives without payload do not behave like one communicator's: no evidence"
                    f" of the clocks; {describe_payload_remedy([r.schema_version for r in reports])}"
                )
        else:
            _judge(alignment, matches, names)
    corrections = [node.correction for node in alignment.nodes]
    maps = [corrections[r.node].after_utc(offset, base) for r, offset in zip(reports, offsets, strict=True)]
    if any(abs(clock_map.offset) >= FARTHEST for clock_map in maps):
        raise TranslationError("the clocks of the reports are centuries apart: translate reports of one job only")
    return alignment, maps


def _read_alignment(path: Path, base: int, nodes: list[NodeClock]) -> Alignment:
    given = read_table(path)
    for node in nodes:
        node.correction = given.get(node.name, ClockMap())
    alignment = Alignment(f"file {path}", base, nodes)
    missing = [node.name for node in nodes if node.name not in given]
    if missing:
        alignment.warnings.append(f"{path} does not list {_join_some(missing)}: keeping plain UTC there")
    return alignment


def fit_from_matches(
    way: str, matches: node_matches.Matches, base: int, names: Sequence[str], nodes: list[NodeClock] | None = None
) -> Alignment:
    """Fit corrections to matched operations, whose times are UTC relative to `base` (ns).

    `nodes`: the clocks to correct, by default uncorrected clocks with these names.
    """
    fits = fit_clocks(matches, names, always=way == COLLECTIVES)
    before = node_matches.find_violations(matches, make_lines(len(names)))
    limit, fixed = np.zeros(len(names)), np.ones(len(names), np.bool_)
    corrected = [fit for fit in fits if fit.model != UTC]
    for fit in corrected:
        limit[fit.domains] = np.fmax(fit.bound, fit.scale)
        fixed[fit.domains[1:]] = False
    lines = node_matches.move_within_bounds(matches, make_lines(len(names), corrected), limit, fixed)
    nodes = nodes or [NodeClock(name) for name in names]
    alignment = Alignment(way, base, nodes, before, node_matches.find_violations(matches, lines))
    for fit in fits:
        _describe(alignment, fit, lines)
    alignment.warnings += _list_warnings(way, fits, alignment.after, nodes)
    return alignment


def _note_evidence(alignment: Alignment, fitted: ClockFit, bound: FloatArray) -> list[NodeClock]:
    """Note the evidence on the clocks of a set of nodes, and the bounds (ns) of their errors; return these clocks.

    If nsys has aligned the exported times itself, the evidence includes how far they are from what the operations
    suggest. Two nodes are compared in this way only if their times have the same clock.
    """
    nodes = [alignment.nodes[domain] for domain in fitted.domains.tolist()]
    for i, node in enumerate(nodes):
        node.bound = _get_finite(bound[i])
        node.collectives = int(fitted.operations[i])
        node.reference = nodes[0].name
        if i and node.clock == nodes[0].clock != SYSTEM:
            node.suggested = _get_finite(fitted.suggested[i])
    return nodes


def _judge(alignment: Alignment, matches: node_matches.Matches, names: Sequence[str]) -> None:
    """Store in a given alignment how far it is from the evidence, at most."""
    given = make_lines(len(names))
    for domain, node in enumerate(alignment.nodes):
        given.offset[domain], given.drift[domain] = node.correction.offset, node.correction.drift
        given.since[domain] = node.correction.since - alignment.utc_base if node.correction.drift else 0
    for fit in fit_clocks(matches, names, always=True):
        apart = np.zeros(fit.domains.size)
        for time in (fit.since - fit.half_window, fit.since + fit.half_window):
            applied = (given.offset + given.drift * (time - given.since))[fit.domains]
            difference = fit.offset + fit.drift * (time - fit.since) - applied
            apart = np.maximum(apart, np.abs(difference - difference[0]))
        _note_evidence(alignment, fit, fit.bound + apart)
    alignment.before = node_matches.find_violations(matches, make_lines(len(names)))
    alignment.after = node_matches.find_violations(matches, given)


def _describe(alignment: Alignment, fitted: ClockFit, lines: node_matches.Lines) -> None:
    for i, node in enumerate(_note_evidence(alignment, fitted, fitted.bound)):
        if fitted.model != UTC:
            offset = int(np.rint(lines.offset[fitted.domains[i]]))
            node.correction = ClockMap(offset, float(fitted.drift[i]), alignment.utc_base + fitted.since)
        node.model = fitted.model
        node.offset_error = _get_finite(fitted.offset_error[i])
        node.drift_error = _get_finite(fitted.drift_error[i])
        node.median = float(fitted.median[i])
        node.percentile_95 = float(fitted.percentile_95[i])


def _get_finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _list_warnings(
    way: str, fits: Sequence[ClockFit], after: node_matches.Violations, nodes: Sequence[NodeClock]
) -> list[str]:
    warnings = []
    names = [node.name for node in nodes]
    clocks = sorted({node.clock for node in nodes})
    plain = clocks[0] if len(clocks) == 1 else "exported times"
    doubt = ", so times of different nodes may be off by milliseconds" if clocks == [SYSTEM] else ""
    connected = {int(domain) for fit in fits for domain in fit.domains}
    alone = [name for domain, name in enumerate(names) if domain not in connected]
    if alone:
        verb = "shares" if len(alone) == 1 else "share"
        warnings.append(
            f"{_join_some(alone)} {verb} no collective with another node, nor enough messages in both directions:"
            f" aligned by {plain} only{doubt}"
        )
    if len(fits) > 1:
        warnings.append(
            f"the nodes form {len(fits)} groups that share nothing to align by: {plain} only between the groups{doubt}"
        )
    for fit in fits:
        if not fit.held_out and way == AUTO:
            members = _join_some([names[d] for d in fit.domains.tolist()])
            warnings.append(
                f"too few collectives on {members} to validate a clock fit; keeping {plain};"
                " align by collectives to force it"
            )
    if after.broken:
        warnings.append(
            f"{after.broken:,} of {after.checked:,} collectives and messages end before they could,"
            f" by up to {after.worst / 1000:,.1f} us; trust the clocks no further than that"
        )
    return warnings


def _join_some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"


# ---- operations that were matched by their order alone ---------------------------------------------------------------

# A choice: the rest is room for the error of a fit. If it is too large, kernels of different communicators are
# evidence.
LEAST_CAUSAL = 0.99
"""Least share of the operations in which no rank left before all had entered."""

MOST_RESIDUAL_NS = 100e3
"""Largest median distance of ends. Real collectives have up to 13 us, kernels of different communicators 2,300 us."""


def match_by_node(
    evidence: Sequence[Evidence], domains: Sequence[int], offsets: Sequence[int]
) -> tuple[Operations, node_matches.Matches]:
    """Match the evidence of all reports; by order alone, match only kernels that may belong to one communicator.

    Other kernels are matched within each node. Arguments and result are as in `match_evidence`; `unlike` of the
    matches counts the rejected operations over nodes.
    """
    operations, matches = node_matches.match_evidence(evidence, domains, offsets)
    unlike = _find_unlike(operations, matches, max(domains, default=0) + 1)
    if not unlike.size:
        return operations, matches
    leader = operations.leader[np.isin(operations.group, unlike)]
    used = np.unique(operations.table.communicator[leader])
    names = {operations.table.communicators[number] for number in used.tolist()}
    apart = [_name_by_node(part, domain, names) for part, domain in zip(evidence, domains, strict=True)]
    operations, rest = node_matches.match_evidence(apart, domains, offsets)
    return operations, replace(rest, unlike=int(np.isin(matches.group, unlike).sum()))


def _name_by_node(evidence: Evidence, domain: int, names: set[str]) -> Evidence:
    """Return the evidence of a report on a node, with the named communicators renamed for this node alone."""
    tables = [
        table._replace(communicators=[f"{n} of node {domain}" if n in names else n for n in table.communicators])
        for table in evidence.collectives
    ]
    return replace(evidence, collectives=tables)


def _find_unlike(operations: Operations, matches: node_matches.Matches, domains: int) -> IntArray:
    """Return the groups that were matched by order over nodes and do not behave like one communicator."""
    known = operations.table.has_communicator[operations.leader] if len(operations) else np.zeros(0, np.bool_)
    rejected = []
    for group in np.unique(operations.group[~known]).tolist():
        is_unlike = not _behaves(_show_entering(operations, group), domains)
        if is_unlike and (matches.group == group).any():
            rejected.append(group)
    return np.array(rejected, np.int64)


def _show_entering(operations: Operations, group: int) -> node_matches.Matches:
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
    return node_matches.match_reports(node_matches.list_crossings(part))


def _behaves(matches: node_matches.Matches, domains: int) -> bool:
    """Return whether operations between domains behave like operations of one communicator."""
    fits = fit_sets(matches, [str(domain) for domain in range(domains)], always=True)
    if any((fit.median > MOST_RESIDUAL_NS).any() for fit in fits):
        return False
    violations = node_matches.find_violations(matches, make_lines(domains, fits))
    return violations.broken <= (1 - LEAST_CAUSAL) * violations.checked
