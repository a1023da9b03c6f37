"""Keeps the results of one process in a file for other processes: the shards of reports.

A file has a line that names this version of the program, a line with the length of a JSON text and the hash of what
follows, the text, and the bytes of all arrays. It may come from other people, so it names no classes or functions:
what becomes of a value follows from the type that this program declares for it. A value that does not have that type
is damage.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import Index, OneFor
from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.runtime.files import open_atomically, open_input
from nsys2prv_ng.version import __version__

T = TypeVar("T")
Array = npt.NDArray[Any]

_MAGIC = f"nsys2prv-ng {__version__} keeps\n".encode()
_ALIGNED = 8
"""The bytes of an array start at a multiple of this number."""
_KINDS = "biufSU"
"""Kinds of values that an array may have. The bytes of Python objects would be addresses."""
_INT64 = np.iinfo(np.int64)


def write_kept(path: Path, value: object, open_types: Sequence[Any] = ()) -> None:
    """Write an instance of a dataclass to a file that appears complete or not at all.

    `open_types`: the types that a value declared as an object may have. Raises TranslationError, and TypeError for a
    field of a type that cannot be kept.
    """
    writer = _Writer(open_types)
    text = json.dumps(writer.write(value, type(value)), separators=(",", ":")).encode()
    content = b"".join([text, *(array.tobytes() + bytes(-array.nbytes % _ALIGNED) for array in writer.arrays)])
    with open_atomically(path) as file:
        file.write(_MAGIC + b"%d %s\n" % (len(text), _hash(content)))
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def load_kept(path: Path, kind: type[T], open_types: Sequence[Any] = ()) -> T:
    """Return the object in a file. Raises ReportError if it is damaged, of another version, or of another kind."""
    try:
        with open_input(path) as file:
            magic = file.readline(200)
            header = file.readline(100) if magic == _MAGIC else b""
            content = file.read() if header else b""
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror or error}") from None
    if magic != _MAGIC:
        what = "another version of nsys2prv-ng" if magic.startswith(b"nsys2prv-ng ") else "something else"
        raise ReportError(f"{path}: was written by {what}; remove it and make it again")
    try:
        length, hashed = header.split()
        if hashed != _hash(content):
            raise ValueError("it changed since it was written")
        end = int(length)
        reader = _Reader(open_types, memoryview(content)[end:])
        value: T = reader.read(json.loads(content[:end]), kind)
        if reader.end != len(content) - end or reader.unchecked:
            raise ValueError("it ends too early or too late, or has indices of nothing")
    except Exception:  # damaged data raises anything
        raise make_damaged_error(path) from None
    return value


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode()


def make_damaged_error(path: Path) -> ReportError:
    """Return the error for a file with values that the program did not write."""
    return ReportError(f"{path}: is damaged; make it again")


class _Form:
    """What the writer and the reader know about types."""

    def __init__(self, open_types: Sequence[Any]) -> None:
        self._open_types = open_types
        self._fields: dict[Any, list[tuple[str, Any]]] = {}

    def list_fields(self, kind: Any) -> list[tuple[str, Any]] | None:
        """Return the names and types of the fields of a dataclass or named tuple; None for any other type."""
        if kind not in self._fields:
            if is_dataclass(kind):
                names = [each.name for each in fields(kind)]
            elif isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
                names = list(kind._fields)
            else:
                return None
            hints = get_type_hints(kind, include_extras=True)
            self._fields[kind] = [(name, hints[name]) for name in names]
        return self._fields[kind]

    def list_choices(self, hint: Any) -> tuple[Any, ...]:
        """Return the types that a union or an object may have; none for any other type."""
        if hint in (object, Any):
            return (type(None), *self._open_types)
        return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else ()


_SEQUENCES = {list: list, Sequence: tuple, set: set, frozenset: frozenset}
_MAPPINGS = (dict, Mapping)


def _get_class(hint: Any) -> Any:
    """Return the class of the instances of a type, such as list of list[int]."""
    hint = _strip(hint)
    return get_origin(hint) or hint


def _strip(hint: Any) -> Any:
    """Return a type without what `Annotated` says, and what an alias stands for: NDArray is one since numpy 2.5."""
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    alias = getattr(get_origin(hint), "__value__", None)
    return hint if alias is None else alias[get_args(hint)]


class _Writer(_Form):
    """Turns objects into what `json.dumps` takes, and collects the arrays in them."""

    def __init__(self, open_types: Sequence[Any]) -> None:
        super().__init__(open_types)
        self.arrays: list[Array] = []
        self._known: dict[int, list[Any]] = {}  # by the id of the array: one that many objects share is written once
        self._end = 0

    def write(self, value: Any, hint: Any) -> Any:
        hint = _strip(hint)
        if isinstance(value, np.generic):
            value = value.item()
        if choices := self.list_choices(hint):
            which = next(i for i, choice in enumerate(choices) if isinstance(value, _get_class(choice)))
            return [which, self.write(value, choices[which])]
        of_class, arguments = _get_class(hint), get_args(hint)
        if hint in (bool, int, float, str):
            return hint(value)
        if hint is type(None):
            return None
        if of_class is np.ndarray:
            return self._write_array(value)
        if of_class is np.dtype:
            return value.str
        if hint is Path:
            return str(value)
        if of_class in _MAPPINGS:
            return [[self.write(key, arguments[0]), self.write(item, arguments[1])] for key, item in value.items()]
        if of_class in _SEQUENCES or arguments[1:] == (...,):
            return [self.write(item, arguments[0]) for item in value]
        if of_class is tuple:
            return [self.write(item, kind) for item, kind in zip(value, arguments, strict=True)]
        if (known := self.list_fields(hint)) is not None:
            return [self.write(getattr(value, name), kind) for name, kind in known]
        raise TypeError(f"{hint} cannot be kept")

    def _write_array(self, array: Array) -> list[Any]:
        if id(array) not in self._known:
            if array.dtype.kind not in _KINDS:
                raise TypeError(f"an array of {array.dtype} cannot be kept")
            self._known[id(array)] = [array.dtype.str, array.shape, self._end]
            self.arrays.append(array)  # it stays alive, so no other array gets its id
            self._end += array.nbytes + -array.nbytes % _ALIGNED
        return self._known[id(array)]


class _Reader(_Form):
    """Turns what `json.loads` returns into objects. Raises ValueError and others for a value of a wrong type."""

    def __init__(self, open_types: Sequence[Any], content: memoryview) -> None:
        super().__init__(open_types)
        self._content = content
        self._known: dict[tuple[str, tuple[int, ...], int], Array] = {}
        self.end = 0  # the byte after the last array
        # Largest indices of what an object has that contains those read so far.
        self.unchecked: list[tuple[str | int, int]] = []

    def read(self, value: Any, hint: Any) -> Any:
        hint = _strip(hint)
        if choices := self.list_choices(hint):
            which, value = value
            return self.read(value, choices[which])
        of_class, arguments = _get_class(hint), get_args(hint)
        if hint in (bool, int, float, str, type(None)):
            if type(value) is not hint or (hint is int and not _INT64.min <= value <= _INT64.max):
                raise ValueError(f"{value} is not of type {hint}")
            return value
        if of_class is np.ndarray:
            return self._read_array(value, _get_class(get_args(arguments[1])[0]))
        if of_class is np.dtype:
            return _read_dtype(value)
        if hint is Path:
            return Path(self.read(value, str))
        if not isinstance(value, list):
            raise ValueError(f"{value} is not a list")
        if of_class in _MAPPINGS:
            return {self.read(key, arguments[0]): self.read(item, arguments[1]) for key, item in value}
        if of_class in _SEQUENCES or arguments[1:] == (...,):
            return _SEQUENCES.get(of_class, tuple)(self.read(item, arguments[0]) for item in value)
        if of_class is tuple:
            return tuple(self.read(item, kind) for item, kind in zip(value, arguments, strict=True))
        known, before = self.list_fields(hint) or (), len(self.unchecked)
        values = {name: self.read(item, kind) for (name, kind), item in zip(known, value, strict=True)}
        marks = [(name, mark) for name, kind in known for mark in getattr(kind, "__metadata__", ())]
        if marks:
            self._note_indices(values, marks)
            if issubclass(hint, tuple):
                _check_lengths(values, marks)
        self._check_indices(values, before)
        return hint(**values)

    def _note_indices(self, values: Mapping[str, Any], marks: Sequence[tuple[str, Any]]) -> None:
        """Check the least indices in the fields of an object, and note the largest."""
        for name, mark in marks:
            if isinstance(mark, Index):
                indices = np.asarray(values[name])
                if indices.min(initial=0) < mark.least:
                    raise ValueError(f"{name} has an index below {mark.least}")
                self.unchecked.append((mark.of, int(indices.max(initial=-1))))

    def _check_indices(self, values: Mapping[str, Any], before: int) -> None:
        """Check the indices `unchecked` since `before` that are of a number, or of a field of an object."""
        later = []
        for of, largest in self.unchecked[before:]:
            name, *rest = str(of).split(".")
            if isinstance(of, int) or name in values:
                count = of if isinstance(of, int) else len(reduce(getattr, rest, values[name]))
                if largest >= count:
                    raise ValueError(f"{largest} is no index of {of}")
            else:
                later.append((of, largest))
        self.unchecked[before:] = later

    def _read_array(self, value: Any, scalar: Any = np.generic) -> Array:
        name, shape, begin = value
        key = self.read(name, str), tuple(self.read(length, int) for length in shape), self.read(begin, int)
        if key not in self._known:
            dtype, count = _read_dtype(name), math.prod(key[1])
            if count < 0 or begin < 0 or begin % _ALIGNED or begin + count * dtype.itemsize > len(self._content):
                raise ValueError("an array is not within the file")
            array = np.frombuffer(self._content, dtype, count, begin) if count else np.zeros(0, dtype)
            self._known[key] = array.reshape(key[1]).copy()
            self.end = max(self.end, begin + array.nbytes + -array.nbytes % _ALIGNED)
        array = self._known[key]
        if not np.issubdtype(array.dtype, (np.signedinteger if scalar is np.int64 else scalar)):
            raise ValueError(f"an array of {array.dtype} is none of {scalar}")
        return array


def _check_lengths(values: Mapping[str, Any], marks: Sequence[tuple[str, Any]]) -> None:
    """Check that the columns of a table have one dimension and the same length, or that of the items they are for."""
    others = {name: mark.of for name, mark in marks if isinstance(mark, OneFor)}
    shapes = {item.shape for name, item in values.items() if isinstance(item, np.ndarray) and name not in others}
    if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
        raise ValueError("columns of a table differ in length")
    if any(len(values[name]) != len(values[of]) for name, of in others.items()):
        raise ValueError("a column of a table has too few or too many items")


def _read_dtype(name: Any) -> np.dtype[Any]:
    dtype = np.dtype(name) if isinstance(name, str) else np.dtype(object)
    if dtype.kind not in _KINDS or not dtype.isnative or not dtype.itemsize:
        raise ValueError(f"{name} is not a type of numbers or texts")
    return dtype
