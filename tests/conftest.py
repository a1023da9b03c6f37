"""What all tests share: real reports, profiles of Hypothesis, tiers, and workers: their tests and cores."""

from __future__ import annotations

import fcntl
import gc
import importlib
import lzma
import os
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests import shared

if TYPE_CHECKING:
    from tests.translated import Translations

# Processes that tests start would compile the whole package each time, and workers the tests (pytest_collection).
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

REPOSITORY = Path(__file__).resolve().parents[1]
SAMPLES = REPOSITORY / "samples"
EXERCISES = SAMPLES / "exercises.tar.xz"
DATA = REPOSITORY / "tests/data"
"""Compressed reports that only tests need."""
_UNPACKED = REPOSITORY / ".reports"
"""Unpacked reports stay here, for all workers and for the next run."""
_BESIDE = (REPOSITORY / "../shared/reports").resolve()
HAS_LARGE_REPORTS = _BESIDE.is_dir()
NO_REPORTS = "the large reports are not beside the repository (../shared/reports)"


# ---- real reports ----------------------------------------------------------------------------------------------------


@contextmanager
def _locked(folder: Path) -> Iterator[Path]:
    """Make a folder, and keep other processes out of this block for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def unpack(path: Path) -> Path:
    """Return a report; one that is compressed (.xz) is unpacked once for all processes and runs."""
    if path.suffix != ".xz":
        return path
    target = _UNPACKED / path.parent.name / path.stem
    with _locked(target.parent):
        if not target.exists() or target.stat().st_mtime < path.stat().st_mtime:
            partial = target.with_suffix(".partial")
            with lzma.open(path) as source, partial.open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
            partial.rename(target)
    return target


def _find_reports() -> Path:
    """Return the folder of real reports by kind: beside the repository, else what the repository holds, unpacked."""
    if HAS_LARGE_REPORTS:
        return _BESIDE
    with _locked(_UNPACKED / "exercises") as folder:
        done = folder / EXERCISES.name
        if not done.exists() or done.stat().st_mtime < EXERCISES.stat().st_mtime:
            with tarfile.open(EXERCISES) as archive:
                archive.extraction_filter = getattr(tarfile, "data_filter", None)  # older Pythons have none
                archive.extractall(_UNPACKED)
            (_UNPACKED / "whatif").mkdir(exist_ok=True)
            for path in folder.glob("[jmw]*.sqlite"):  # beside the repository, those of one GPU have this folder
                path.replace(_UNPACKED / "whatif" / path.name)
            done.touch()
    for path in sorted(DATA.glob("*/*.xz")):
        unpack(path)
    for path in sorted(DATA.glob("gold/*.csv")):
        (_UNPACKED / "gold").mkdir(exist_ok=True)
        shutil.copy(path, _UNPACKED / "gold")
    return _UNPACKED


REPORTS = _find_reports()


class Unpacked:
    """`unpacked(path)`: the report itself, or what is in a compressed one; without it, the test is skipped."""

    def __call__(self, path: Path) -> Path:
        if not path.exists():
            # Where all reports are, one that is missing is a mistyped name.
            (pytest.fail if _BESIDE.is_dir() else pytest.skip)(NO_REPORTS)
        return unpack(path)


@pytest.fixture(scope="session")
def unpacked() -> Unpacked:
    return Unpacked()


@pytest.fixture(scope="session")
def samples() -> Path:
    """Folder of the reports in the repository."""
    return SAMPLES


@pytest.fixture(scope="session")
def shared_reports() -> Path:
    """Folder of other real reports by kind; those of tests/data are always there, the rest goes through `unpacked`."""
    return REPORTS


@pytest.fixture(scope="session")
def translations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Translations]:
    """Translations that tests of several files share."""
    from tests.translated import Translations

    made = Translations(tmp_path_factory.mktemp("translations"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def whole_traces() -> Callable[[Path], tuple[bytes, bytes, bytes]]:
    """`whole_traces(report)`: .prv, .pcf and .row of all sources of one report; those of the last one are kept."""

    @lru_cache(maxsize=2)
    def translate_whole(report: Path) -> tuple[bytes, bytes, bytes]:
        from tests.translated import bytes_of_trace

        with TemporaryDirectory() as folder:
            return bytes_of_trace([report], Path(folder))

    return translate_whole


# ---- tiers -----------------------------------------------------------------------------------------------------------

# A loaded machine makes examples slow: no deadline. Tests scale their number of examples (tests.examples).
settings.register_profile("default", settings.get_profile("default"), deadline=None, print_blob=True)
settings.register_profile("push", max_examples=15, deadline=None, print_blob=True)
settings.register_profile("ci", max_examples=15, derandomize=True, deadline=None, print_blob=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-sets", action="store_true", help="run over all real reports, with more examples")
    parser.addoption("--damage", type=int, default=84, help="number of damaged reports to translate")
    parser.addoption("--damage-from", type=int, default=0, metavar="SEED", help="seed of the first of them")


def pytest_configure(config: pytest.Config) -> None:
    """Take fewer examples but with all sets, unless a profile was chosen; share the cores among the workers."""
    if worker := getattr(config, "workerinput", None):
        _use_own_cores(*_number_worker(worker))
        shared.FOLDER = Path(worker["shared"])
    if not config.getoption("hypothesis_profile", None) and not config.getoption("all_sets"):
        settings.load_profile("push")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases that are not for every push."""
    further = [] if config.getoption("all_sets") else [item for item in items if item.get_closest_marker("all_sets")]
    config.stash[_LEFT_OUT] = len(further)
    if further:
        items[:] = [item for item in items if not item.get_closest_marker("all_sets")]
        config.hook.pytest_deselected(items=further)


_LEFT_OUT = pytest.StashKey[int]()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a worker send how many cases it left out: every worker collects the same."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash[_LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker left out."""
    node.config.stash[_LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was left out, which xdist does not."""
    if count := config.stash.get(_LEFT_OUT, 0):
        terminalreporter.write_line(f"left out: {count} cases of further sets (--all-sets runs them)")


# ---- workers ---------------------------------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give all workers of a run one folder for what they share."""
    if shared.FOLDER is None:
        shared.FOLDER = Path(mkdtemp())
    node.workerinput["shared"] = str(shared.FOLDER)


def pytest_unconfigure(config: pytest.Config) -> None:
    if shared.FOLDER is not None and not hasattr(config, "workerinput"):
        shutil.rmtree(shared.FOLDER)


def _use_own_cores(worker: int, workers: int) -> None:
    """Let a worker use its share of the cores, so that jobs do not fork more readers than there are cores for them."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[worker::workers] or [cores[worker % len(cores)]])


def _number_worker(worker: dict[str, Any]) -> tuple[int, int]:
    """Return the number of a worker, from 0, and how many there are."""
    return int(worker["workerid"].removeprefix("gw")), int(worker["workercount"])


def pytest_collection(session: pytest.Session) -> None:
    """Let a worker import its share of the tests before all: what it compiles of them, the others only read."""
    if worker := getattr(session.config, "workerinput", None):
        number, workers = _number_worker(worker)
        chosen = [Path(argument.partition("::")[0]).resolve() for argument in session.config.args]
        for path in sorted(REPOSITORY.glob("tests/**/test_*.py"))[number::workers]:
            if not {path, *path.parents}.isdisjoint(chosen):
                with suppress(Exception, pytest.skip.Exception):  # collecting it shows what is wrong
                    importlib.import_module(".".join(path.relative_to(REPOSITORY).with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)  # before xdist says that the worker has collected
def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep what was imported and collected out of later searches for garbage, and in one copy for forked readers."""
    if shared.FOLDER is not None:
        shared.share("groups", lambda: {item.nodeid: get_group(item) for item in session.items})
    gc.freeze()


def get_group(item: pytest.Item) -> str:
    """Return what a test is grouped by: its mark (tests/report_sets.py), else its file.

    Tests of a group run one after the other on one worker, so that what they share is made once.
    """
    group = item.get_closest_marker("group")
    return item.nodeid.partition("::")[0] if group is None else group.args[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute groups of tests; the groups of xdist's loadgroup are lost with pytest 9.2, which keeps its own ids."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        @cached_property
        def groups(self) -> dict[str, str]:
            return shared.share("groups", dict)

        def _split_scope(self, nodeid: str) -> str:
            return self.groups[nodeid]

    return ByGroup(config, log)
