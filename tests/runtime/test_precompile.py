"""Kernels that are compiled before they are called, in other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.runtime import precompile

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
    return {path.name.split("-")[0] for path in cache.rglob("*.nbi")}


def test_another_process_compiles_once_for_all_runs(tmp_path: Path) -> None:
    assert run(tmp_path, "1", "wait") == "0 []"
    assert list_kept(tmp_path) == set()
    assert run(tmp_path, "2", "wait") == "1 [0]"
    assert list_kept(tmp_path) == {"kernels.search", "kernels.take_median"}
    assert run(tmp_path, "2", "wait") == "0 []"


def test_what_is_kept_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(precompile, "ALL", ("runtime",))
    assert precompile.compile_all() == (2, 2)
    [kept, _] = sorted(tmp_path.rglob("*.nbi"))
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
    assert list_kept(tmp_path / "cache") == {"kernels.search", "kernels.take_median"}


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
