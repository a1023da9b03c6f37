"""What all tests share: real reports, profiles of Hypothesis, the fast tier, and the worker that each test runs on."""

from __future__ import annotations

import fcntl
import lzma
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.translated import Translations

REPOSITORY = Path(__file__).resolve().parents[1]
SAMPLES = REPOSITORY / "samples"
DATA = REPOSITORY / "tests/data"
"""Compressed reports that only tests need."""
_UNPACKED = REPOSITORY / ".reports"
"""Unpacked reports stay here, for all workers and for the next run."""
_BESIDE = (REPOSITORY / "../shared/reports").resolve()
HAS_LARGE_REPORTS = _BESIDE.is_dir()
NO_REPORTS = "the large reports are not beside the repository (../shared/reports)"


# ---- real reports ----------------------------------------------------------------------------------------------------


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Make a folder, and keep other processes out of this block for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
    """Return the folder of real reports by kind: beside the repository, else what tests/data holds, unpacked."""
    if HAS_LARGE_REPORTS:
        return _BESIDE
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
            pytest.skip(NO_REPORTS)
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


# ---- tiers -----------------------------------------------------------------------------------------------------------

settings.register_profile("default", settings.get_profile("default"), print_blob=True)
settings.register_profile("dev", max_examples=25, print_blob=True)
settings.register_profile("ci", derandomize=True, print_blob=True)
# Tests scale their number of examples by that of the profile (tests.examples).


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--damage", type=int, default=200, help="number of damaged reports to translate")
    parser.addoption("--damage-from", type=int, default=0, metavar="SEED", help="seed of the first of them")


def pytest_configure(config: pytest.Config) -> None:
    """Take fewer examples in the fast tier, unless a profile was chosen."""
    if config.getoption("markexpr") == "not slow" and not config.getoption("hypothesis_profile", None):
        settings.load_profile("dev")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests of the same reports on one worker, so that these are translated once, and others file by file."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_group(item)))


def _group(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    for value in callspec.params.values() if callspec else ():
        paths = value if isinstance(value, list) else [value]
        if paths and all(isinstance(path, Path) and path.suffix in (".sqlite", ".xz") for path in paths):
            return f"{paths[0].parent.name}.{paths[0].name.partition('.sqlite')[0]}.{len(paths)}"
    return str(item.path.relative_to(REPOSITORY / "tests")).replace(os.sep, ".").removesuffix(".py")
