"""Builds dataclasses from dicts that were read back from JSON, and checks them: their file may come from others."""

from __future__ import annotations

import math
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from nsys2prv_ng.summary.links.numbers import LinkNumbers

T = TypeVar("T")


def build_dataclass(cls: type[T], values: Mapping[str, Any]) -> T:
    """Return an instance with these values; lists, tuples, dicts and dataclasses in it are built in the same way.

    The metadata of a field may have another `key`, and a function that reads it from the text there (`read`). Keys that
    are not fields of the class are ignored, so that later versions may add keys. Raises ValueError for a
    value of a wrong type, an integer beyond 64 bits, a float that is not finite, and a field without a value.
    """
    hints = get_type_hints(cls)
    arguments = {}
    for field in fields(cls):  # type: ignore[arg-type]
        key, read = field.metadata.get("key", field.name), field.metadata.get("read")
        if key in values:
            where = f"{cls.__name__}.{key}"
            hint = hints[field.name] if read is None else str
            value = _build(hint, values[key], where)
            arguments[field.name] = value if read is None else read(value)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{cls.__name__} has no {field.name}")
    return cls(**arguments)


def _build(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (hint,) = (argument for argument in arguments if argument is not type(None))
        return _build(hint, value, where)
    if origin is list and isinstance(value, list | tuple):
        return [_build(arguments[0], item, where) for item in value]
    if origin is tuple and isinstance(value, list | tuple) and len(value) == len(arguments):
        return tuple(_build(part, item, where) for part, item in zip(arguments, value, strict=True))
    if origin is dict and isinstance(value, Mapping):
        return {_build(arguments[0], key, where): _build(arguments[1], item, where) for key, item in value.items()}
    if isinstance(hint, type) and is_dataclass(hint) and isinstance(value, Mapping):
        return build_dataclass(hint, value)
    if hint is int and isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{where} is beyond 64 bits")
    if hint is float and isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is not finite")
    if isinstance(hint, type) and isinstance(value, hint) and not (isinstance(value, bool) and hint is int):
        return value
    raise ValueError(f"{where} is {type(value).__name__}")


class Counted(Protocol):
    """A row with the number of what it sums up."""

    @property
    def count(self) -> int: ...


def check_counts(rows: Iterable[Counted]) -> None:
    """Raise ValueError if a row counts nothing: it has no mean."""
    if any(row.count < 1 for row in rows):
        raise ValueError("a row counts nothing")


def check_links(links: LinkNumbers) -> None:
    """Raise ValueError if a link names a GPU, rank or node that is not listed, or an exchange sends nothing."""
    of_nodes = [(link.sender, link.receiver) for link in links.node_links]
    of_ends = [(link.sender, link.receiver) for link in links.links]
    for slow in links.slow:
        (of_nodes if slow.are_nodes else of_ends).append((slow.sender, slow.receiver))
    of_rates = [(rate.sender, rate.receiver) for rate in links.rates]
    for pairs, listed in ((of_nodes, links.nodes), (of_ends, links.ends), (of_rates, links.ends)):
        if any(index is None or not 0 <= index < len(listed) for pair in pairs for index in pair):
            raise ValueError("a link names what is not listed")
    if any(sum(sent.bytes for sent in exchange.sent) < 1 for exchange in links.all_to_all):
        raise ValueError("an exchange sends nothing")
