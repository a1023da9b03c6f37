"""Kernels that are compiled before they are called, in other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from types import GenericAlias
from typing import Any, TypeVar

import numpy as np
import pytest
from numba import typeof
from numpy.typing import NDArray

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.runtime import precompile
from nsys2prv_ng.runtime.precompile import ALL, compile_modules, derive_types, list_kernels, list_modules

pytestmark = pytest.mark.slow

MEANWHILE = """
import sys, time
from pathlib import Path
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.runtime import precompile
from nsys2prv_ng.runtime.precompile import compile_ahead

precompile.count_usable_cores = lambda: int(sys.argv[1])
started = []
start = precompile._start
precompile._start = lambda *arguments: started.extend(start(*arguments)) or started
with compile_ahead(["runtime"]):
    if sys.argv[2] == "wait":
        for process in started:
            process.wait()
print(len(started), [process.returncode for process in started])
"""


def run(cache: Path, *arguments: str) -> str:
    """Run a command that compiles meanwhile on some cores, and return how many processes it started and their ends."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", MEANWHILE, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    return done.stdout.strip()


def list_kept(cache: Path) -> set[str]:
    """Return the kernels whose machine code is kept."""
    return {path.name.split("-")[0] for path in cache.rglob("*.nbc")}


def test_another_process_compiles_once_for_all_runs(tmp_path: Path) -> None:
    assert run(tmp_path, "1", "wait") == "0 []"
    assert list_kept(tmp_path) == set()
    assert run(tmp_path, "2", "wait") == "1 [0]"
    assert list_kept(tmp_path) == {"jit.search", "jit.take_median"}
    assert run(tmp_path, "2", "wait") == "0 []"


def test_what_is_kept_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(precompile, "ALL", ("runtime",))
    assert precompile.compile_all() == (2, 2)
    [kept, _] = sorted(tmp_path.rglob("*.nbc"))
    kept.unlink()
    assert precompile.compile_all() == (2, 1)
    assert precompile.compile_all() == (2, 0)


def test_a_process_ends_with_the_command_that_needs_it(tmp_path: Path) -> None:
    assert run(tmp_path, "2", "leave") == "1 [-9]"
    assert run(tmp_path, "2", "wait") == "1 [0]"  # it was not done


def test_the_current_folder_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clone of the program may be there, or anything of these names."""
    for name in ("nsys2prv_ng", "runpy", "numba"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('of the current folder')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    [process] = precompile._start(["runtime"], 1, subprocess.PIPE)
    assert precompile._finish(process) == (2, 2)
    assert list_kept(tmp_path / "cache") == {"jit.search", "jit.take_median"}


def test_a_process_ends_with_its_input(tmp_path: Path) -> None:
    """A command may be killed."""
    command = [sys.executable, "-m", precompile.__name__, "0", "1", *precompile.ALL]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.close()
    start = time.monotonic()
    assert process.wait(timeout=60) == 1
    assert time.monotonic() - start < 30  # all kernels take longer
    assert process.stdout is not None
    process.stdout.close()


def test_the_reason_why_kernels_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> list[subprocess.Popen[bytes]]:
        command = [sys.executable, "-c", "import sys; sys.exit('first line\\nno such type\\x1b[1m')"]
        return [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)]

    monkeypatch.setattr(precompile, "_start", start)
    with pytest.raises(TranslationError, match="cannot be compiled: no such type"):
        precompile.compile_all()


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompile, "find_folder", lambda: None)
    monkeypatch.setattr(precompile, "_start", pytest.fail)
    with precompile.compile_ahead(precompile.FOR_SUMMARY):
        pass


def test_rooms_with_kernels_are_named() -> None:
    rooms = {module.split(".")[1] for module in precompile.list_modules([""])}
    assert rooms == set(precompile.ALL)


pytestmark = pytest.mark.slow

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
REAL_CALLS = """
import sys
from numba.core.dispatcher import Dispatcher
import nsys2prv_ng as api
from nsys2prv_ng.runtime.precompile import derive_types

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
