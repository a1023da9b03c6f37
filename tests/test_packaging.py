"""What is built for users: the version, the wheel and the source distribution."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import nsys2prv_ng
from tests.conftest import REPOSITORY, SAMPLES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_the_version_is_written_once() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"] and "version" not in project["project"]
    path = REPOSITORY / project["tool"]["hatch"]["version"]["path"]
    assert f'"{nsys2prv_ng.__version__}"' in path.read_text()
    others = [p for p in (REPOSITORY / "nsys2prv_ng").rglob("*.py") if p != path]
    assert [p for p in others if f'"{nsys2prv_ng.__version__}"' in p.read_text()] == []


def test_sites_find_all_packages_with_their_bounds() -> None:
    page = (REPOSITORY / "docs/guides/hpc-centres.md").read_text()
    listed = [re.findall(r"`([a-z0-9-]+>=[^`]+)`", row) for row in re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE)]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    needed = [name.partition(";")[0] for name in project["project"]["dependencies"]]
    cluster = project["project"]["optional-dependencies"]["cluster"]
    assert listed == [needed, cluster, project["build-system"]["requires"]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder with the source distribution and the wheel, built without a network; skipped where hatchling is not."""
    pytest.importorskip("hatchling.build")
    folder = tmp_path_factory.mktemp("built")
    code = "import sys, hatchling.build as b; b.build_sdist(sys.argv[1]); b.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, folder], cwd=REPOSITORY, check=True, capture_output=True, timeout=300)
    yield folder


@pytest.mark.slow
def test_the_wheel_has_what_a_user_needs(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert f"-{nsys2prv_ng.__version__}-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    presets = {f"nsys2prv_ng/bundled/cfgs/{p.parent.name}/{p.name}" for p in (REPOSITORY / "cfgs").glob("*/*.cfg")}
    modules = {p.relative_to(REPOSITORY).as_posix() for p in (REPOSITORY / "nsys2prv_ng").rglob("*.py")}
    assert names >= presets | modules | {"nsys2prv_ng/bundled/samples/slurm.sh", "nsys2prv_ng/py.typed"}
    assert not any(name.startswith(("tests/", "samples/", "docs/", "benchmarks/")) for name in names)


@pytest.mark.slow
def test_the_source_distribution_has_what_its_tests_need(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    folders = ("tests", "samples", "docs", "benchmarks", "cfgs", "nsys2prv_ng")
    files = [p for folder in folders for p in (REPOSITORY / folder).rglob("*") if p.is_file()]
    expected = {p.relative_to(REPOSITORY).as_posix() for p in files if "__pycache__" not in p.parts}
    assert {f"samples/{p.name}" for p in SAMPLES.glob("*.sqlite")} <= expected
    assert expected - names == set()
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", ".ci/run"} <= names
