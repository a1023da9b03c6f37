"""Builds dataclasses of what JSON has: the values of fields, by the types of their annotations."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def build_dataclass(cls: type[T], values: Mapping[str, Any]) -> T:
    """Return an instance with these values; lists, tuples, dicts and dataclasses in it are built in the same way.

    The metadata of a field may have another `key`, one of `earlier` versions, and a function that reads it from the
    text there (`read`). Keys that are not fields of the class are ignored, so that later versions may add keys. Raises
    ValueError for a value of a wrong type, an integer beyond 64 bits, a float that is not finite, and a field without a
    value.
    """
    arguments = {}
    for name, key, earlier, build, is_needed in _describe_fields(cast(Any, cls)):
        key = key if key in values else earlier
        if key in values:
            arguments[name] = build(values[key])
        elif is_needed:
            raise ValueError(f"{cls.__name__} has no {name}")
    return cls(**arguments)


_Build = Callable[[Any], Any]


@lru_cache(None)
def _describe_fields(cls: Any) -> list[tuple[str, str, str, _Build, bool]]:
    """Return (name, key, earlier key, function that builds its value, whether it has no default) of each field.

    A saved summary of thousands of steps has some hundred thousand instances of a few classes.
    """
    hints, described = get_type_hints(cls), []
    for one in fields(cls):
        key, read = one.metadata.get("key", one.name), one.metadata.get("read")
        build = _choose_build(hints[one.name] if read is None else str, f"{cls.__name__}.{key}")
        is_needed = one.default is MISSING and one.default_factory is MISSING
        earlier = one.metadata.get("earlier", key)
        described.append((one.name, key, earlier, build if read is None else _join(build, read), is_needed))
    return described


def _join(build: _Build, read: _Build) -> _Build:
    return lambda value: read(build(value))


def _choose_build(hint: Any, where: str) -> _Build:
    """Return the function that builds a value of a type, or raises ValueError with `where` for another value."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (hint,) = (argument for argument in arguments if argument is not type(None))
        some, is_optional = _choose_build(hint, where), type(None) in arguments
        return lambda value: None if value is None and is_optional else some(value)
    parts = [_choose_build(part, where) for part in arguments if part is not Ellipsis]

    def refuse(value: Any) -> ValueError:
        return ValueError(f"{where} is {type(value).__name__}")

    def build_list(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [parts[0](item) for item in value]
        raise refuse(value)

    def build_tuple(value: Any) -> Any:
        if isinstance(value, list | tuple) and len(value) == len(parts):
            return tuple(part(item) for part, item in zip(parts, value, strict=True))
        raise refuse(value)

    def build_dict(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {parts[0](key): parts[1](item) for key, item in value.items()}
        raise refuse(value)

    def build_instance(value: Any) -> Any:
        if isinstance(value, Mapping):
            return build_dataclass(hint, value)
        if isinstance(value, hint):
            return value
        raise refuse(value)

    def build_plain(value: Any) -> Any:
        if hint is int and isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError(f"{where} is beyond 64 bits")
        if hint is float and isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{where} is not finite")
        if isinstance(hint, type) and isinstance(value, hint) and not (isinstance(value, bool) and hint is int):
            return value
        raise refuse(value)

    if isinstance(hint, type) and is_dataclass(hint):
        return build_instance
    builds: dict[Any, _Build] = {list: build_list, tuple: build_tuple, dict: build_dict}
    return builds.get(origin, build_plain)
