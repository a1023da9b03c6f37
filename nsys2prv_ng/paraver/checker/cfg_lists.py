"""Parses the lists among the values of a .cfg: functions, their parameters, filters, objects.

    window_selected_functions { 2, { {level, function}, {level, function} } }
    window_semantic_module LEVEL FUNCTION { 2, { 1 value, 2 value value } }
    window_filter_module evt_type 2 number number
    window_filter_module evt_type_label 2 "label" "label"
    window_object thread { application, task, 2, { 1, 0 } }

Paraver reads them from separator to separator and checks little: an extra blank makes another name, and a count that
does not fit the items after it leaves the rest unread. Here they must have the form that Paraver writes.
"""

from __future__ import annotations

import re

from nsys2prv_ng.paraver.checker.cfg_names import ALIASES, FILTERS, WINDOW_LEVELS, is_number
from nsys2prv_ng.value_class import ValueClass

LABELLED = ("evt_type", "evt_value")
"""Filters whose numbers may have labels."""
OBJECT_INDICES = {"appl": 0, "task": 1, "thread": 2, "node": 0, "cpu": 1}
"""Levels of window_object lines, and the number of indices of larger objects before the count."""

_LIST = re.compile(r"\{ (?P<count>\d{1,5}), ?\{(?P<items>.*)\} ?\}", re.ASCII)
_FUNCTION = re.compile(r"\{([^,{}]*), ([^{}]*)\}")
_PARAMETERS = re.compile(
    r"(?P<level>\S+) (?P<function>[^{]*) \{ (?P<count>\d{1,5}), \{ (?P<values>[^{}]*)\} ?\}", re.ASCII
)
_LABELS = re.compile(r'(?P<count>\d{1,5})(?P<labels>( "[^"]*")*)', re.ASCII)
_OBJECTS = re.compile(r"\{ (?P<numbers>(\d{1,9}, ){1,3})\{(?P<marks>.*)\} ?\}", re.ASCII)


class CfgSyntaxError(Exception):
    """A value that does not fit its key. The text of the error is the problem."""


class Function(ValueClass):
    """The choice of a function for a level, or for a filter such as evt_type."""

    level: str
    name: str
    line: int


class Parameters(ValueClass):
    """Values for the parameters of a function."""

    level: str
    function: str
    values: tuple[tuple[float, ...], ...]
    line: int


class Filter(ValueClass):
    """The numbers or the labels that a line adds to a filter. The other attribute is None."""

    kind: str
    numbers: list[float] | None = None
    labels: list[str] | None = None


class Selection(ValueClass):
    """The objects of a level that are shown. within: indices (from 0) of the larger objects that contain them."""

    level: str
    within: tuple[int, ...]
    marks: tuple[str, ...]
    line: int


def parse_functions(value: str, line: int, *, composes: bool = False) -> list[Function]:
    """Parse { n, { {level, function}, ... } }. Raises CfgSyntaxError.

    Replace old names of levels by new ones, and add the prefix compose_ to levels of composes if it is missing.
    """
    match = _LIST.fullmatch(value)
    if match is None or re.sub(r"[, ]", "", _FUNCTION.sub("", match["items"])):
        raise CfgSyntaxError(f"'{value[:60]}' is not {{ n, {{ {{level, function}}, ... }} }}")
    items = _FUNCTION.findall(match["items"])
    if len(items) != int(match["count"]):
        raise CfgSyntaxError(f"{match['count']} functions are announced, {len(items)} follow: Paraver takes others")
    return [Function(_normalize_level(level, composes), name, line) for level, name in items]


def _normalize_level(name: str, composes: bool) -> str:
    name = ALIASES.get(name, name)
    return f"compose_{name}" if composes and name in WINDOW_LEVELS else name


def parse_parameters(value: str, line: int) -> Parameters:
    """Parse LEVEL FUNCTION { parameters, { values value ..., values value ... } }. Raises CfgSyntaxError."""
    match = _PARAMETERS.fullmatch(value)
    if match is None:
        raise CfgSyntaxError(f"'{value[:60]}' is not 'level function {{ n, {{ values value ..., ... }} }}'")
    texts = match["values"].removesuffix(" ").split(", ") if match["values"].strip() else []
    if len(texts) != int(match["count"]):
        raise CfgSyntaxError(f"{match['count']} parameters are announced, {len(texts)} follow: Paraver takes others")
    values = tuple(map(_parse_parameter, texts))
    return Parameters(_normalize_level(match["level"], False), match["function"], values, line)


def _parse_parameter(text: str) -> tuple[float, ...]:
    count, *values = text.split(" ")
    if not count.isdecimal() or not all(map(is_number, values)):
        raise CfgSyntaxError(f"'{text[:40]}' is not a number of values and the values: Paraver refuses the cfg")
    if len(values) != int(count[:9]):
        raise CfgSyntaxError(f"{count[:9]} values of a parameter are announced, {len(values)} follow")
    return tuple(map(float, values))


def parse_filter(value: str) -> Filter:
    """Parse FILTER n number ..., or FILTER_label n "label" .... Raises CfgSyntaxError."""
    kind, _, rest = value.partition(" ")
    labelled = kind.removesuffix("_label")
    if labelled != kind and labelled in LABELLED:
        return Filter(labelled, labels=_parse_labels(kind, rest))
    if kind not in FILTERS:
        raise CfgSyntaxError(f"'{kind[:40]}' is not a filter ({', '.join(FILTERS)}): Paraver ignores the line")
    count, *texts = rest.split(" ")
    if not count.isdecimal() or not all(map(is_number, texts)):
        raise CfgSyntaxError(f"'{rest[:60]}' is not a count followed by that many numbers: Paraver refuses the cfg")
    if len(texts) != int(count[:9]):
        raise CfgSyntaxError(f"{kind}: {count[:9]} numbers are announced, {len(texts)} follow: Paraver takes others")
    return Filter(kind, [_parse_filter_number(kind, text) for text in texts])


def _parse_filter_number(kind: str, text: str) -> float:
    """Parse a number of a filter. Raises CfgSyntaxError.

    Objects count from 1 and have 16 bits, event types have 32. Paraver cuts larger numbers, and fractions.
    """
    number = float(text)
    limits = {"evt_type": (1, 2**32 - 1), "from_obj": (1, 2**16 - 1), "to_obj": (1, 2**16 - 1)}
    least, most = limits.get(kind, (-(2**63), 2**63 - 1))
    whole = kind not in ("evt_value", "bw_msg")
    if not least <= number <= most or (whole and not re.fullmatch(r"-?\d+", text, re.ASCII)):
        raise CfgSyntaxError(f"{text[:40]} is not a number for {kind}: Paraver reads another one, or refuses the cfg")
    return number


def _parse_labels(kind: str, text: str) -> list[str]:
    match = _LABELS.fullmatch(text)
    if match is None:
        expected = 'a count followed by that many labels in "quotes"'
        raise CfgSyntaxError(f"'{text[:60]}' is not {expected}: Paraver finds others")
    labels = re.findall(r'"([^"]*)"', match["labels"])
    if len(labels) != int(match["count"]):
        raise CfgSyntaxError(f"{kind}: {match['count']} labels are announced, {len(labels)} follow")
    return labels


def parse_selection(value: str, line: int) -> Selection:
    """Parse LEVEL { index, ..., n, { mark, ... } }. Raises CfgSyntaxError."""
    level, _, rest = value.partition(" ")
    level = ALIASES.get(level, level)
    match = _OBJECTS.fullmatch(rest)
    if level not in OBJECT_INDICES:
        raise CfgSyntaxError(f"'{level[:40]}' has no objects to choose ({', '.join(OBJECT_INDICES)})")
    numbers = [int(number) for number in match["numbers"].split(", ")[:-1]] if match else []
    if match is None or len(numbers) != OBJECT_INDICES[level] + 1:
        form = "".join(f"{name}, " for name in ("application", "task")[: OBJECT_INDICES[level]])
        form = "node, " if level == "cpu" else form
        raise CfgSyntaxError(f"'{value[:60]}' is not {level} {{ {form}n, {{ All, None, ... }} }}")
    marks = tuple(match["marks"].strip(" ").split(", "))
    if len(marks) != numbers[-1]:
        raise CfgSyntaxError(f"{numbers[-1]} objects of level {level} are announced, {len(marks)} follow")
    return Selection(level, tuple(numbers[:-1]), marks, line)
