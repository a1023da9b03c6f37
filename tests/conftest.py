"""What all tests share: real reports, profiles of Hypothesis, tiers, and workers: their tests and cores."""

from __future__ import annotations

import fcntl
import gc
import importlib
import lzma
import os
import re
import shutil
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests import shared
from tests.report_sets import COVERING, SetFinder, find_further_cases, list_sets

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
FAST_SETS = ("samples/single-graph", "samples/mpi-4", "cpu/2024.2.3-nccl_mimic")
"""Reports that the fast tier translates: one with every kind of GPU event, one of MPI, one without a GPU."""


def slow_but(fast: str, names: Iterable[str], further: Iterable[str] = ()) -> list[Any]:
    """Return names as parameters, of which the fast tier takes one, and every push leaves out further ones."""
    left_out = set(further)
    marks = {name: [pytest.mark.slow] * (name != fast) + [pytest.mark.all_sets] * (name in left_out) for name in names}
    return [pytest.param(name, marks=own) for name, own in marks.items()]


def push_but(further: Iterable[object], names: Iterable[object]) -> list[Any]:
    """Return names as parameters, of which every push leaves out further ones."""
    left_out = set(further)
    return [pytest.param(name, marks=pytest.mark.all_sets if name in left_out else ()) for name in names]


FAST_REPORTS = ("samples/single-graph", "samples/mpi-4.rank0", "cpu/2024.2.3-nvtx_py")
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

# A loaded machine makes examples slow: no deadline.
settings.register_profile("default", settings.get_profile("default"), deadline=None, print_blob=True)
settings.register_profile("dev", max_examples=15, deadline=None, print_blob=True)
settings.register_profile("push", max_examples=20, deadline=None, print_blob=True)
settings.register_profile("ci", max_examples=20, derandomize=True, deadline=None, print_blob=True)
# Tests scale their number of examples by that of the profile (tests.examples).


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-sets", action="store_true", help="run over all real reports, with more examples")
    parser.addoption("--damage", type=int, help="number of damaged reports to translate (24, with --all-sets 84)")
    parser.addoption("--damage-from", type=int, default=0, metavar="SEED", help="seed of the first of them")


def pytest_configure(config: pytest.Config) -> None:
    """Take fewer examples but with all sets, unless a profile was chosen; share the cores among the workers."""
    if worker := getattr(config, "workerinput", None):
        _use_own_cores(*_number_worker(worker))
        shared.FOLDER = Path(worker["shared"])
    config.stash[_LEFT_OUT] = Counter()
    if not config.getoption("hypothesis_profile", None) and not config.getoption("all_sets"):
        settings.load_profile("dev" if _is_fast_tier(config) else "push")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give all workers of a run one folder for what they share."""
    if shared.FOLDER is None:
        shared.FOLDER = Path(mkdtemp())
    node.workerinput["shared"] = str(shared.FOLDER)


def pytest_unconfigure(config: pytest.Config) -> None:
    if shared.FOLDER is not None and not hasattr(config, "workerinput"):
        shutil.rmtree(shared.FOLDER)


def _is_fast_tier(config: pytest.Config) -> bool:
    return config.getoption("markexpr") == "not slow"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import files that are slow as a whole in the fast tier."""
    is_left_out = collection_path.match("test_*.py") and _is_left_out(collection_path, config)
    config.stash[_LEFT_OUT]["files that are slow as a whole"] += is_left_out
    return is_left_out or None


def _is_left_out(file: Path, config: pytest.Config) -> bool:
    return _is_fast_tier(config) and bool(_SLOW_AS_A_WHOLE.search(file.read_text()))


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
            if {path, *path.parents}.isdisjoint(chosen) or _is_left_out(path, session.config):
                continue
            with suppress(Exception, pytest.skip.Exception):  # collecting it shows what is wrong
                importlib.import_module(".".join(path.relative_to(REPOSITORY).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Keep what was imported and collected out of later searches for garbage, and in one copy for forked readers."""
    gc.freeze()


_SET_OF_TEST = SetFinder(list_sets(SAMPLES, REPORTS))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is not in the fast tier, and leave out the sets and cases that are not for every push."""
    _mark_slow(items)
    further = find_further_cases([item.nodeid for item in items], _SET_OF_TEST)
    further |= _find_cases_above_limit(items, "push_cases") | _find_other_sets(items)
    for item in items:
        if item.nodeid in further:
            item.add_marker(pytest.mark.all_sets)
    if not takes_all_sets(config):
        left_out = [item for item in items if item.get_closest_marker("all_sets")]
        items[:] = [item for item in items if not item.get_closest_marker("all_sets")]
        config.hook.pytest_deselected(items=left_out)


def takes_all_sets(config: pytest.Config) -> bool:
    """Return whether a run takes all sets of reports, all cases and all examples."""
    return config.getoption("all_sets") or "all_sets" in config.getoption("markexpr")


def _find_cases_above_limit(items: list[pytest.Item], marker: str) -> set[str]:
    """Return the ids of the cases after the first ones, whose number a marker of their test gives."""
    cases: Counter[str] = Counter()
    above = set()
    for item in items:
        limit = item.get_closest_marker(marker)
        if limit is not None:
            function = item.nodeid.partition("[")[0]
            cases[function] += 1
            if cases[function] > limit.args[0]:
                above.add(item.nodeid)
    return above


def _find_other_sets(items: list[pytest.Item]) -> set[str]:
    """Return the ids of the cases of other sets than those that the marker `push_sets` of their test names."""
    others = set()
    for item in items:
        chosen = item.get_closest_marker("push_sets")
        if chosen is not None and (name := _SET_OF_TEST(item.nodeid)) is not None:
            assert set(chosen.args) <= set(COVERING), item.nodeid
            if name not in chosen.args:
                others.add(item.nodeid)
    return others


def _mark_slow(items: list[pytest.Item]) -> None:
    """Keep all real reports but a few, the long ones, and further cases of a test from the fast tier."""
    quick = [item for item in items if item.get_closest_marker("slow") is None]
    above = _find_cases_above_limit(quick, "fast_cases")
    for item in items:
        if item.nodeid in above:
            item.add_marker(pytest.mark.slow)
        of_reports = _OF_REPORTS.search(item.nodeid)
        is_large = of_reports is not None and of_reports.group() not in (*FAST_SETS, *FAST_REPORTS)
        is_large |= "ddplong-2x2" in item.nodeid
        if is_large or {"long_set", "long_ddp"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


# ---- what a run leaves out -------------------------------------------------------------------------------------------

_LEFT_OUT = pytest.StashKey[Counter[str]]()


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count what a run leaves out."""
    for item in items:
        is_further = not takes_all_sets(item.config) and item.get_closest_marker("all_sets") is not None
        kind = (
            "tests of further sets and cases (--all-sets runs them)" if is_further else "tests that -m or -k leaves out"
        )
        item.config.stash[_LEFT_OUT][kind] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a worker send what it left out: every worker collects and leaves out the same."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(session.config.stash[_LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker left out."""
    node.config.stash[_LEFT_OUT] |= Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was left out, which xdist does not."""
    for kind, count in sorted(config.stash[_LEFT_OUT].items()):
        if count:
            terminalreporter.write_line(f"left out: {count} {kind}")


# ---- groups of tests for workers -------------------------------------------------------------------------------------

_OF_REPORTS = re.compile(r"(?:samples|gpu|cpu|public|bench|exercises)/[^]]+(?=]$)")
_SLOW_AS_A_WHOLE = re.compile(r"^pytestmark = pytest\.mark\.slow\b", re.MULTILINE)
_OF_DAMAGE = re.compile(r"test_damaged_reports\[(\w+)-(\d+)]$")


def group_of_test(node: str) -> str:
    """Return what a test is grouped by: tests of a group run one after the other on one worker.

    Tests of the same reports are a group, whatever file they are in, so that these reports are translated once; their
    name is the last part of the test's id. Others go file by file.
    """
    if found := _OF_REPORTS.search(node):
        return found.group()
    if found := _OF_DAMAGE.search(node):
        return f"damaged {found[1]} {int(found[2]) // 25 % 2}"
    return node.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute groups of tests (xdist's own loadgroup does nothing with pytest 9.2)."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of_test(nodeid)

    return ByGroup(config, log)
