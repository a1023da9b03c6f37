"""Makes the tables of kinds of steps and of slow steps: parts that add up to the step, and what differs by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nsys2prv_ng.steps.numbered_names import OTHER_WORK
from nsys2prv_ng.summary.efficiency.numbers import StepEfficiency, StepKind, StepNumbers
from nsys2prv_ng.summary.efficiency.windows import PARTS, list_parts
from nsys2prv_ng.summary.steps.numbers import IdlePart, SlowStepNumbers, StepChange, StepPart
from nsys2prv_ng.text.formatting import count_noun, format_number_ranges, format_percent, format_time, join_first
from nsys2prv_ng.text.grid import Cell, Column, Count, Grid, Name, Ns, NsChange, Ordinal, Share, make_columns
from nsys2prv_ng.text.names import NO_RANGE, OUTSIDE_CALLS, clean_name

_LEAST = 0.01
"""Least share of the difference of a part with a row of its own. A choice: the JSON has all parts."""
_MOST_PARTS, _MOST_PLACES = 4, 4
"""Most parts, and places of the host-bound part, with a row of their own: with the sums, no row of the table hides."""
_MOST_NUMBERS = 8
_TIMES = ("usual_ns", "slow_ns", "difference_ns")


def list_slow_tables(numbers: SlowStepNumbers) -> list[Grid]:
    """Return the parts of slow and usual steps, and what differs by name."""
    return [_tabulate_parts(numbers), _tabulate_changes(numbers)]


def list_kind_tables(steps: StepNumbers | None) -> list[Grid]:
    """Return how many steps each kind has and how long they take, and the parts of their time; none for one kind."""
    kinds = [] if steps is None else steps.kinds
    return [_tabulate_kinds(kinds), _tabulate_kind_parts(kinds)] if kinds else []


def list_numbers(numbers: Sequence[int]) -> str:
    """Return the numbers of steps as ranges, with dots after the first ones: 3-5, 9, ..."""
    return join_first(format_number_ranges(numbers).split(","), _MOST_NUMBERS)


def _describe(numbers: SlowStepNumbers) -> str:
    """Return which steps are compared."""
    which = list_numbers(numbers.slow)
    slow = f"Slow step {which}" if len(numbers.slow) == 1 else f"Slow steps {which}"
    return f"{slow} against {count_noun(len(numbers.usual), 'usual step')}"


# ---- kinds -----------------------------------------------------------------------------------------------------------


_SUFFIXES = ("with ", "that ")
"""How names of kinds begin that follow their noun."""
_LEAST_PART = 0.005
"""Least share of a kind's time of a part with a row of its own: the half of a percent of tabulate_parts."""
_MOST_NAMED = 3
"""Most kinds in a sentence: the table has all."""


def name_kind(kind: str, noun: str) -> str:
    """Return a noun with the kind that it is of: "decode steps", "steps with 12 more kernels", "other work"."""
    text = clean_name(kind)
    if kind == OTHER_WORK:
        return text
    return " ".join(filter(None, [noun, text] if text.startswith(_SUFFIXES) else [text, noun]))


def describe_kinds(steps: StepNumbers | None) -> str:
    """Return how many steps of each kind there are and what they take, and their main parts if these differ."""
    kinds = [] if steps is None or len(steps.kinds) < 2 else steps.kinds
    whole, count = sum(kind.total_ns for kind in kinds), sum(kind.count for kind in kinds)
    parts = [max(list_parts(kind.losses), key=lambda part: part.ns) if kind.losses else None for kind in kinds]
    differ = None not in parts and len({part.label for part in parts if part is not None}) > 1
    texts = []
    for kind, part in zip(kinds[:_MOST_NAMED], parts, strict=False):
        steps_of_kind = f"{kind.count:,} of {count:,} steps (median {format_time(kind.median_ns)})"
        text = f"{clean_name(kind.name)}: {steps_of_kind}, {format_percent(kind.total_ns, whole)} of the time"
        if differ and part is not None and kind.losses is not None:
            gpu_ns = kind.total_ns * kind.losses.devices
            text += f", {part.label} {format_percent(part.ns, gpu_ns)} of it"
        texts.append(text)
    more = [count_noun(len(kinds) - _MOST_NAMED, "more kind")] if len(kinds) > _MOST_NAMED else []
    return "; ".join([*texts, *more])


_AMOUNTS = {
    "context requests": "context_requests",
    "context tokens": "context_tokens",
    "generation requests": "generation_requests",
    "generated tokens": "generation_tokens",
}


def _tabulate_kinds(kinds: Sequence[StepKind]) -> Grid:
    """Return the number of steps of each kind, their lengths, and the batches of a serving engine."""
    whole = sum(kind.total_ns for kind in kinds)
    rows: list[list[Cell]] = []
    for kind in kinds:
        times: list[Cell] = [Ns(kind.median_ns), Ns(kind.total_ns / kind.count), Share(kind.total_ns, whole)]
        known = [getattr(kind, field) for field in _AMOUNTS.values()]
        rows.append(
            [Name(kind.name), Count(kind.count), *times, *("" if number is None else Count(number) for number in known)]
        )
    columns = make_columns("kind", "steps", "median", "mean", "share of time")
    columns += [Column(title, optional=True) for title in _AMOUNTS]
    return Grid(caption="Kinds of steps", columns=columns, rows=rows, more="kinds")


def _tabulate_kind_parts(kinds: Sequence[StepKind]) -> Grid:
    """Return the parts of the mean step of each kind: they add up to it."""
    means = {}
    for kind in kinds:
        if kind.losses is not None:
            steps = kind.count * kind.losses.devices
            means[kind.name] = {part.label: part.ns / steps for part in list_parts(kind.losses)}
    wholes = [sum(parts.values()) for parts in means.values()]
    shown: dict[str, list[float]] = {}
    rest = [0.0] * len(wholes)
    for label in dict.fromkeys(label for parts in means.values() for label in parts):
        times = [parts.get(label, 0.0) for parts in means.values()]
        if any(ns >= _LEAST_PART * whole for ns, whole in zip(times, wholes, strict=True)):
            shown[label] = times
        else:
            rest = [sum(both) for both in zip(rest, times, strict=True)]
    shown |= {"smaller parts": rest} if any(rest) else {}
    rows: list[list[Cell]] = [[label, *(Ns(round(ns)) for ns in times)] for label, times in shown.items()]
    return Grid(
        caption="Where the time of each kind goes, mean time per GPU and step",
        columns=make_columns("part", *map(clean_name, means)),
        rows=rows,
        footer=[["step", *(Ns(round(ns)) for ns in wholes)]] if rows else [],
    )


def tabulate_steps(steps: Sequence[StepEfficiency]) -> Grid:
    """Return the length of each step, and the parts of the time of all GPUs in it."""
    parts = [{part.label: part.ns for part in list_parts(step.losses)} if step.losses else {} for step in steps]
    labels = list(dict.fromkeys(label for own in parts for label in own))
    rows: list[list[Cell]] = [
        [
            Ordinal(step.number),
            Name(step.kind),
            Ns(step.length_ns),
            Ns(step.host_ns),
            *(Ns(own.get(label)) for label in labels),
        ]
        for step, own in zip(steps, parts, strict=True)
    ]
    return Grid(columns=make_columns("step", "kind", "time", "host time", *labels), rows=rows)


# ---- parts -----------------------------------------------------------------------------------------------------------


def _tabulate_parts(numbers: SlowStepNumbers) -> Grid:
    """Return the parts of the mean step, and below the host-bound part the ranges and calls that it is divided into."""
    rows = [_lay_out_part(part, place, numbers) for part, place in _list_parts(numbers)]
    sums = {key: getattr(numbers, key) for key in _TIMES}
    return Grid(
        caption=f"{_describe(numbers)}, mean time per {clean_name(numbers.unit)} and step",
        columns=make_columns("part", "of it, host in", "usual", "slow", "difference", Column("share", minor=True)),
        rows=rows,
        names=2,
        footer=[_lay_out_part(StepPart(name="step", **sums), "", numbers)],
    )


def _list_parts(numbers: SlowStepNumbers) -> Iterator[tuple[StepPart, str]]:
    """Yield the parts with their places: the larger ones, and the sum of the smaller ones."""
    for part in _join_small(numbers.parts, numbers, "smaller part", _MOST_PARTS):
        yield part, ""
        if part.name == PARTS["host_ns"]:
            for idle in _join_small(numbers.idle, numbers, "smaller place", _MOST_PLACES):
                yield idle, _name_place(idle) if isinstance(idle, IdlePart) else idle.name


def _join_small(parts: Sequence[StepPart], numbers: SlowStepNumbers, noun: str, most: int) -> list[StepPart]:
    """Return the first parts, at most `most`, with at least _LEAST of the difference, and the sum of the others."""
    least = _LEAST * abs(numbers.difference_ns)
    large = [part for part in parts if abs(part.difference_ns) >= least][:most]
    small = [part for part in parts if part not in large]
    if not small:
        return list(parts)
    sums = {key: sum(getattr(part, key) for part in small) for key in _TIMES}
    return [*large, StepPart(name=count_noun(len(small), noun), **sums)]


def _name_place(idle: IdlePart) -> str:
    return f"{idle.range or NO_RANGE} / {idle.name or OUTSIDE_CALLS}"


def _lay_out_part(part: StepPart, place: str, numbers: SlowStepNumbers) -> list[Cell]:
    names = Name("" if place else part.name), Name(place)
    return [*names, *_lay_out_times(part), Share(part.difference_ns, numbers.difference_ns)]


def _lay_out_times(part: StepPart) -> list[Cell]:
    return [Ns(part.usual_ns), Ns(part.slow_ns), NsChange(part.difference_ns)]


# ---- by name ---------------------------------------------------------------------------------------------------------


_SLOW = "slow steps"
_KINDS = {"class": "kernel class", "transfer": "copy, set or NCCL", "range": "NVTX range"}


def _tabulate_changes(numbers: SlowStepNumbers) -> Grid:
    """Return what differs most by name; then the calls and ranges that only slow steps have and that differ little."""
    only = {(each.kind, each.name) for each in numbers.only_slow}
    known = {(change.kind, change.name) for change in numbers.changes}
    changes = [*numbers.changes]
    for each in numbers.only_slow:
        if (each.kind, each.name) not in known:
            times = dict(zip(_TIMES, (0, each.ns, each.ns), strict=True))
            changes.append(StepChange(kind=each.kind, name=each.name, per=each.per, rank=None, **times))
    rows = [_lay_out_change(change, (change.kind, change.name) in only) for change in changes]
    return Grid(
        caption=f"{_describe(numbers)}, by name, mean time per step",
        columns=make_columns("name", "kind", Column("of", minor=True), Column("only in", optional=True))
        + make_columns("usual", "slow", "difference"),
        rows=rows,
        names=4,
        more="names",
    )


def _name_kind(kind: str) -> str:
    """Return a kind in words; kernels, calls and kinds of later versions have their key."""
    return _KINDS.get(kind, clean_name(kind))


def _lay_out_change(change: StepChange, is_only: bool) -> list[Cell]:
    whose = f"each {clean_name(change.per)}" if change.rank is None else f"rank {change.rank}"
    of = Name(whose, {"rank": change.rank})
    return [Name(change.name), _name_kind(change.kind), of, _SLOW if is_only else "", *_lay_out_times(change)]
