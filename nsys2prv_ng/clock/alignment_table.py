"""Shows how clocks were aligned: as a table for the terminal, as JSON, and as a file that --align can read."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from nsys2prv_ng.clock.applying import LARGEST_DRIFT, ClockMap
from nsys2prv_ng.clock.matches import Violations
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.report.export_settings import FARTHEST, SYSTEM
from nsys2prv_ng.runtime.files import read_input
from nsys2prv_ng.text.formatting import count_noun, format_table
from nsys2prv_ng.value_class import ValueClass

NOTHING_CHECKED = Violations(0, 0, 0.0)


class NodeClockNumbers(ValueClass):
    """The clock of one node in JSON; None for an unknown number."""

    name: str
    model: str
    """The part of its clock that collectives corrected; empty if it was not fitted."""
    reference: str
    """The node that keeps its clock."""
    offset_us: float
    offset_error_us: float | None
    drift_ppm: float
    drift_error_ppm: float | None
    error_bound_us: float | None
    """Bound of the error against the reference within the window of the collectives, with 95 % confidence."""
    since_utc_ns: int
    """The time from which drift counts."""
    collectives: int
    """Number of compared operations: collectives, and pairs of messages in opposite directions."""
    residual_median_us: float | None
    residual_95_us: float | None
    """95 % of the residuals are smaller."""
    clock: str
    """The clock of the exported times: UTC, vClock or normalised time."""
    suggested_us: float | None
    """Largest correction that the operations suggest for times that nsys has aligned itself, applied or not."""


class AlignmentNumbers(ValueClass):
    """The clocks of all nodes in JSON, and the operations that break causality before and after the correction."""

    way: str
    violations_before: int
    violations_after: int
    violations_checked: int
    """Number of checked operations."""
    nodes: list[NodeClockNumbers]


class NodeClock(ValueClass):
    """The clock of one node: its correction, the error, and the evidence. Errors and residuals in ns; drift relative.

    None stands for an unknown value. `clock` is a constant of report/export_settings.py; `NodeClockNumbers` explains
    the other fields.
    """

    name: str
    correction: ClockMap = field(default_factory=ClockMap)
    clock: str = SYSTEM
    model: str = ""
    reference: str = ""
    offset_error: float | None = None
    drift_error: float | None = None
    bound: float | None = None
    collectives: int = 0
    median: float | None = None
    percentile_95: float | None = None
    suggested: float | None = None

    @property
    def numbers(self) -> NodeClockNumbers:
        """The clock in the units of JSON."""
        return NodeClockNumbers(
            name=self.name,
            model=self.model,
            reference=self.reference,
            offset_us=self.correction.offset / 1000,
            offset_error_us=_scale(self.offset_error, 1e-3),
            drift_ppm=self.correction.drift * 1e6,
            drift_error_ppm=_scale(self.drift_error, 1e6),
            error_bound_us=_scale(self.bound, 1e-3),
            since_utc_ns=self.correction.since,
            collectives=self.collectives,
            residual_median_us=_scale(self.median, 1e-3),
            residual_95_us=_scale(self.percentile_95, 1e-3),
            clock=self.clock,
            suggested_us=_scale(self.suggested, 1e-3),
        )


class Alignment(ValueClass):
    """Corrections of all nodes, and their effect on causality. `utc_base`: UTC (ns) of 0 on the common clock."""

    way: str
    utc_base: int
    nodes: list[NodeClock]
    before: Violations = NOTHING_CHECKED
    after: Violations = NOTHING_CHECKED
    warnings: list[str] = field(default_factory=list)

    @property
    def is_corrected(self) -> bool:
        """Whether any clock was compared or corrected."""
        return any(node.collectives or node.correction != ClockMap() for node in self.nodes)

    @property
    def numbers(self) -> AlignmentNumbers:
        """The alignment in the units of JSON."""
        broken = self.before.broken, self.after.broken, self.after.checked
        return AlignmentNumbers(self.way, *broken, [node.numbers for node in self.nodes])

    def to_dict(self) -> dict[str, Any]:
        """Return the alignment for JSON."""
        return asdict(self.numbers)

    def text(self) -> str:
        """Return a line on how well the nodes agree, if known, and a table for a terminal or a log."""
        titles = ("clock of", "offset us", "+-", "drift ppm", "+-", "operations", "residual us", "95 %", "error < us")
        rows = [(*titles, "")]
        for node in self.numbers.nodes:
            is_reference = bool(node.model) and node.name == node.reference
            uncorrected = "utc" if node.clock == SYSTEM else node.clock
            rows.append(
                (
                    node.name,
                    f"{node.offset_us:,.1f}",
                    _format(node.offset_error_us),
                    f"{node.drift_ppm:.2f}" if node.drift_ppm else "-",
                    _format(node.drift_error_ppm, ".2f"),
                    f"{node.collectives:,}",
                    _format(node.residual_median_us),
                    _format(node.residual_95_us),
                    _format(node.error_bound_us),
                    "reference" if is_reference else {"": uncorrected, "utc": uncorrected}.get(node.model, node.model),
                )
            )
        lines = [*self._describe_agreement(), *format_table(rows, text_last=True), *self._compare_clocks()]
        if self.after.checked:
            lines.append(
                f"{self.after.broken:,} of {self.after.checked:,} collectives and messages end before they could"
                f" ({self.before.broken:,} without correction)"
            )
        return "\n".join(lines)

    def _describe_agreement(self) -> list[str]:
        """Return a line with the largest error bound of a node against its reference; none without a bound."""
        bounds = [node.bound for node in self.nodes if node.bound is not None and node.name != node.reference]
        if not bounds:
            return []
        unknown = sum(node.bound is None for node in self.nodes)
        others = f", {count_noun(unknown, 'node')} not compared" if unknown else ""
        nodes = "all compared nodes" if unknown else "all nodes"
        return [f"clocks of {nodes} are within {max(bounds) / 1000:,.1f} us of the reference (95 % bound){others}"]

    def _compare_clocks(self) -> list[str]:
        """Return a line for each clock that nsys aligned itself, with its distance from the fit."""
        lines = []
        for clock in sorted({node.clock for node in self.nodes}):
            apart = [(node.suggested, node.name) for node in self.nodes if node.clock == clock and node.suggested]
            if apart:
                largest, name = max(apart)
                lines.append(f"{clock} and the fit differ by up to {largest / 1000:,.1f} us (on {name})")
        return lines

    def toml(self) -> str:
        """Return a table of all nodes that `read_table` can read."""
        lines = [
            "# Clocks of the nodes: UTC + offset + drift * (UTC - since). The option align takes this file.",
            f"way = {json.dumps(self.way)}",
            f"violations_before = {self.before.broken}",
            f"violations_after = {self.after.broken}",
        ]
        for node in self.to_dict()["nodes"]:
            name = node.pop("name")
            lines += ["", f"[node.{json.dumps(name, ensure_ascii=False)}]"]
            lines += [f"{key} = {json.dumps(value)}" for key, value in node.items() if value is not None]
        return "\n".join(lines) + "\n"


def read_table(path: Path) -> dict[str, ClockMap]:
    """Return the correction of each node by its name. Raises TranslationError for any other file."""
    # Few runs read a table, and the import compiles long patterns.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # type: ignore[import-not-found]  # installed for Python 3.10 only
    try:
        content = tomllib.loads(read_input(path).decode())
    except OSError as error:
        raise TranslationError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise TranslationError(f"{path}: not a table of clocks: {str(error).splitlines()[0]}") from None
    nodes = content.get("node")
    if not isinstance(nodes, dict) or not nodes:
        raise TranslationError(
            f"{path}: not a table of clocks: it has no [node.NAME]; a translation writes one", see=("align_report",)
        )
    return {str(name): _read_correction(path, str(name), node) for name, node in nodes.items()}


def _read_correction(path: Path, name: str, node: object) -> ClockMap:
    values = node if isinstance(node, dict) else {}
    offset = _read_number(path, name, values, "offset_us", FARTHEST // 1000)
    drift, since = (_read_number(path, name, values, key, FARTHEST) for key in ("drift_ppm", "since_utc_ns"))
    if abs(drift) > LARGEST_DRIFT * 1e6:
        raise TranslationError(
            f"{path}: drift_ppm of node {name} is {drift:g}: no clock is off by more than {LARGEST_DRIFT * 1e6:g}"
        )
    if drift and "since_utc_ns" not in values:
        raise TranslationError(f"{path}: node {name} has drift_ppm but no since_utc_ns, the time that it counts from")
    return ClockMap(round(offset * 1000), drift / 1e6, int(since))


def _read_number(path: Path, name: str, values: dict[str, object], key: str, limit: int) -> int | float:
    value = values.get(key, 0)
    if not isinstance(value, int | float) or isinstance(value, bool) or not -limit < value < limit:
        raise TranslationError(f"{path}: {key} of node {name} is not a number that a clock can have")
    return value


def _scale(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _format(value: float | None, form: str = ",.1f") -> str:
    return "-" if value is None else format(value, form)
