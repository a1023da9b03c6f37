"""Derives the types that numba compiles a kernel for from the annotations of its arguments.

So kernels can be compiled before they are called. A test compares these types with those of real calls.
"""

from __future__ import annotations

import types
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
from numba.core import types as nb
from numba.core.dispatcher import Dispatcher
from numba.np.numpy_support import from_dtype

from nsys2prv_ng.runtime.annotations import READ_ONLY

_join: Any = nb.BaseTuple.from_types
Types = tuple[nb.Type, ...]
_SCALARS = {int: nb.int64, float: nb.float64, bool: nb.boolean}


def list_kernels(module: types.ModuleType) -> list[tuple[Dispatcher, Types]]:
    """Return the kernels of a module, each with the types of its arguments, and again for other types of a TypeVar.

    Skip kernels whose annotations do not say all types: they are compiled within those that call them.
    """
    kernels = [
        value
        for value in vars(module).values()
        if isinstance(value, Dispatcher) and value.py_func.__module__ == module.__name__ and _is_kept(value)
    ]
    return [(kernel, kinds) for kernel in kernels for kinds in derive_types(kernel.py_func)]


def _is_kept(kernel: Dispatcher) -> bool:
    """Return whether the machine code of a function is kept; that of an inlined one is a part of its callers."""
    return not kernel.targetoptions.get("forceinline")


def derive_types(function: Any) -> list[Types]:
    """Return the types of the arguments of a function, for each type of a TypeVar; none if some are unknown."""
    hints = get_type_hints(function, include_extras=True)
    hints.pop("return", None)
    variables = {variable for hint in hints.values() for variable in getattr(hint, "__parameters__", ())}
    assert len(variables) <= 1, function
    choices: Any = [element for variable in variables for element in variable.__constraints__ or [Any]] or [None]
    derived = [[_derive(_choose(hint, element)) for hint in hints.values()] for element in choices]
    return [tuple(kinds) for kinds in derived if None not in kinds]


def _choose(hint: Any, element: Any) -> Any:
    """Return an annotation with a type instead of its TypeVar, if it has one."""
    return hint[element] if getattr(hint, "__parameters__", ()) else hint


def _derive(hint: Any) -> Any:
    """Return numba's type for an annotation; None for one that does not say it."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, type) and hasattr(hint, "_fields"):
        parts = [_derive(part) for part in get_type_hints(hint, include_extras=True).values()]
        return None if None in parts else _join(parts, hint)
    if get_origin(hint) is tuple:
        parts = [_derive(part) for part in get_args(hint)]
        return None if None in parts else _join(parts)
    if get_origin(hint) is Annotated:
        return _derive_array(get_args(hint)[0], get_args(hint)[1:])
    return _derive_array(hint, ())


def _derive_array(hint: Any, extras: Any) -> Any:
    """Return the type of an array, given what its annotation says beside its element."""
    element = _find_element(hint)
    if not isinstance(element, type) or element is Any:
        return None
    dimensions = next((extra for extra in extras if isinstance(extra, int)), 1)
    return nb.Array(from_dtype(np.dtype(element)), dimensions, "C", readonly=READ_ONLY in extras)


def _find_element(hint: Any) -> Any:
    """Return the type of the elements of an NDArray; Any if its annotation does not say it.

    An NDArray is ndarray[shape, dtype[element]]; since numpy 2.5 it is an alias whose only argument is the element.
    """
    match get_args(hint):
        case (element,):
            return element
        case (_, dtype):
            return get_args(dtype)[0]
    return Any
