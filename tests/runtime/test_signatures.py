"""Types of arguments that kernels are compiled for, against those of real calls."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import GenericAlias
from typing import Any, TypeVar

import numpy as np
import pytest
from numba import typeof
from numpy.typing import NDArray

from nsys2prv_ng.runtime.precompile import ALL, compile_modules, list_modules
from nsys2prv_ng.runtime.signatures import derive_types, list_kernels

pytestmark = pytest.mark.slow

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
REAL_CALLS = """
import sys
from numba.core.dispatcher import Dispatcher
import nsys2prv_ng as api
from nsys2prv_ng.runtime.signatures import derive_types

called, callers = {}, []
compile_it = Dispatcher.compile
def record(kernel, kinds):
    # Only calls from Python: what kernels call is compiled as well, unless its code is kept.
    if not callers:
        called.setdefault(kernel.py_func, set()).add(tuple(kinds))
    callers.append(kernel)
    try:
        return compile_it(kernel, kinds)
    finally:
        callers.pop()
Dispatcher.compile = record

*reports, trace = sys.argv[1:]
api.translate(reports, trace, jobs=1)  # in this process
api.summarize(reports, jobs=1)
api.check(trace)
for function, calls in called.items():
    derived = derive_types(function)
    print(function.__module__, function.__name__, len(calls), len(calls & set(derived)), sep=" ")
"""


def test_types_of_all_kernels_are_those_of_real_calls(tmp_path: Path) -> None:
    compile_modules(list_modules(ALL))  # so that no call of another kernel compiles one before its own call
    reports = [str(SAMPLES / f"ddp-2x2.rank{rank}.sqlite") for rank in range(2)]
    command = [sys.executable, "-c", REAL_CALLS, *reports, str(tmp_path / "out.prv")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout.splitlines()
    called = [line.split() for line in lines]
    assert len(called) > 40
    for module, name, calls, known in called:
        assert known != "0", (module, name)
        assert calls == known, (module, name)


def test_every_kernel_compiles_for_its_types() -> None:
    """What other tests of this run have compiled is taken from the cache."""
    unknown = set()
    for name in list_modules(ALL):
        module = import_module(name)
        known = {kernel.py_func.__name__ for kernel, _ in list_kernels(module)}
        for kernel, kinds in list_kernels(module):
            kernel.compile(kinds)
        unknown |= {
            value.py_func.__name__
            for value in vars(module).values()
            if hasattr(value, "py_func") and value.py_func.__module__ == name
            if not value.targetoptions.get("forceinline") and value.py_func.__name__ not in known
        }
    assert not unknown


@pytest.mark.parametrize(
    ("array", "hint"),
    [
        (np.zeros(3, np.int64), "IntArray"),
        (np.zeros((3, 2)), "FloatTable"),
        (np.zeros((3, 2, 1), np.int64), "IntCube"),
        (np.zeros(3, np.bool_), "BoolArray"),
        (np.frombuffer(b"abc", np.uint8), "ReadOnlyBytes"),
    ],
)
def test_types_of_arrays(array: np.ndarray, hint: str) -> None:
    def function(values: object) -> None: ...

    function.__annotations__["values"] = getattr(import_module("nsys2prv_ng.arrays.types"), hint)
    assert derive_types(function) == [(typeof(array),)]


@pytest.mark.parametrize(
    "hint",
    [GenericAlias(np.ndarray, (tuple[Any, ...], np.dtype[np.int64])), GenericAlias(list, (np.int64,))],
    ids=["as of numpy 2.4", "as of numpy 2.5, whose alias has the element alone"],
)
def test_types_of_arrays_of_any_numpy(hint: GenericAlias) -> None:
    def function(values: object) -> None: ...

    function.__annotations__["values"] = hint
    assert derive_types(function) == [(typeof(np.zeros(3, np.int64)),)]


def test_types_of_each_choice_of_a_variable() -> None:
    word = TypeVar("word", np.int32, np.float64)

    def function(count: int, words: object, to_words: object) -> None: ...

    function.__annotations__.update(count=int, words=NDArray[word], to_words=NDArray[word])
    narrow, real = np.zeros(3, np.int32), np.zeros(3)
    assert derive_types(function) == [tuple(map(typeof, (1, array, array))) for array in (narrow, real)]
