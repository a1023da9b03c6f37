"""A translation whose workers the system ends, at any place: the same bytes or one line, and nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nsys2prv_ng
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.output import TraceOutput
from nsys2prv_ng.records.store import LocalStore
from nsys2prv_ng.runtime import parallel, processes
from nsys2prv_ng.translation import slices, states, translate
from tests.conftest import SAMPLES
from tests.tiers import cases

DDP = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))
PLACES: dict[str, tuple[Any, str]] = {
    "a slice is made": (translate, "make_slice"),
    "the size of a part is known": (translate._Places, "set_end"),
    "a part is written": (TraceOutput, "write_prv"),
    "states are made": (states, "flatten"),
    "columns are stored": (LocalStore, "put_pieces"),
    "a result is sent": (processes, "_send"),
}


@pytest.fixture
def in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes and several slices also for small reports."""
    monkeypatch.setattr(parallel, "_LEAST", 1)
    for limit in ("_FEWEST", "_MOST"):
        monkeypatch.setattr(slices, limit, 2000)


def write(path: Path) -> list[bytes]:
    nsys2prv_ng.translate(DDP, path, force=True, jobs=3)
    return [file.read_bytes() for file in sorted(path.parent.glob(f"{path.name.split('.')[0]}.*"))]


def make_deadly(monkeypatch: pytest.MonkeyPatch, place: str, ends: Callable[[], bool]) -> None:
    """Let the system end each forked process that has come to a place, if `ends()` is true."""
    owner, name = PLACES[place]
    real, parent = getattr(owner, name), os.getpid()

    def deadly(*arguments: Any, **keywords: Any) -> Any:
        answer = real(*arguments, **keywords)
        if os.getpid() != parent and ends():
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    monkeypatch.setattr(owner, name, deadly)


@pytest.mark.slow
@pytest.mark.parametrize("number", cases([1, 3, 7], push=1))
@pytest.mark.parametrize("suffix", cases(["prv", "prv.gz"], push=1))
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.usefixtures("in_processes")
def test_the_same_bytes_though_a_worker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, suffix: str, number: int
) -> None:
    counted = multiprocessing.get_context("fork").Value("i", 0)

    def is_turn() -> bool:
        with counted:
            counted.value += 1
            return counted.value == number

    expected = write(tmp_path / f"a.{suffix}")
    make_deadly(monkeypatch, place, is_turn)
    assert write(tmp_path / f"a.{suffix}") == expected
    assert counted.value > number, "it was killed"
    assert len(list(tmp_path.iterdir())) == 3 and not multiprocessing.active_children()


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.usefixtures("in_processes")
def test_one_line_if_workers_are_killed_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    make_deadly(monkeypatch, place, lambda: True)
    with pytest.raises(TranslationError, match="lack of memory"):
        write(tmp_path / "a.prv")
    assert not list(tmp_path.iterdir()) and not multiprocessing.active_children()


@pytest.mark.parametrize("processes_work", [False, True])
def test_an_error_in_a_part_does_not_keep_others_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes_work: bool
) -> None:
    """Neither threads nor processes: it is raised as it was."""
    make_slice = translate.make_slice

    def fail(chosen: slices.Slices, number: int, store: LocalStore) -> slices.Text:
        if number == 2:
            raise TranslationError("damaged")
        return make_slice(chosen, number, store)

    for limit in ("_FEWEST", "_MOST"):
        monkeypatch.setattr(slices, limit, 2000)
    if processes_work:
        monkeypatch.setattr(parallel, "_LEAST", 1)
    monkeypatch.setattr(translate, "make_slice", fail)
    with pytest.raises(TranslationError, match=r"^damaged$"):
        write(tmp_path / "a.prv")
    assert not list(tmp_path.iterdir()) and not multiprocessing.active_children()
