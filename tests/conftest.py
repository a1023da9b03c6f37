"""Where tests find reports: small ones in the repository, large ones in a folder beside it that need not be there."""

from __future__ import annotations

import lzma
import shutil
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
SAMPLES = REPOSITORY / "samples"
REPORTS = (REPOSITORY / "../shared/reports").resolve()
NO_REPORTS = "the large reports are not beside the repository (../shared/reports)"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--damage", type=int, default=200, help="number of damaged reports to translate")
    parser.addoption("--damage-from", type=int, default=0, metavar="SEED", help="seed of the first of them")


@pytest.fixture(scope="session")
def samples() -> Path:
    """Folder of the reports in the repository."""
    return SAMPLES


@pytest.fixture(scope="session")
def shared_reports() -> Path:
    """Folder of the large reports beside the repository; without it, the test is skipped."""
    if not REPORTS.is_dir():
        pytest.skip(NO_REPORTS)
    return REPORTS


class Unpacked:
    """Reports by their path: compressed ones (.xz) are unpacked once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, path: Path) -> Path:
        if path.suffix != ".xz":
            return path
        target = self._folder / path.stem
        if not target.exists():
            partial = target.with_suffix(".partial")
            with lzma.open(path) as source, partial.open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
            partial.rename(target)
        return target


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    """`unpacked(path)`: the report itself, or what is in a compressed one."""
    return Unpacked(tmp_path_factory.mktemp("unpacked"))
