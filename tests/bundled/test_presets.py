"""The presets as a user gets them: listed, copied, and in the wheel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nsys2prv_ng.bundled.presets import install_presets, list_filters, list_presets
from nsys2prv_ng.errors import TranslationError, UsageError
from tests.conftest import REPOSITORY

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CFGS = REPOSITORY / "cfgs"


def files_of(folder: Path) -> dict[str, bytes]:
    """Presets and filters by path."""
    files = (*folder.rglob("*.cfg"), *folder.rglob("filters/*.xml"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_every_preset_is_listed_with_the_first_line_of_its_description() -> None:
    listed = list_presets()
    assert {f"{preset.name}.cfg" for preset in listed} == {name for name in files_of(CFGS) if name.endswith(".cfg")}
    for preset in listed:
        before, _, after = (CFGS / f"{preset.name}.cfg").read_text().partition("ConfigFile.BeginDescription\n")
        assert before and preset.summary == after.split("\n")[0] != ""


def test_every_filter_is_listed_with_its_comment() -> None:
    listed = {own.name: own for own in list_filters()}
    assert {f"{name}.xml" for name in listed} == {f"filters/{path.name}" for path in CFGS.glob("filters/*.xml")}
    assert all(f"<!-- {own.summary} -->" in own.path.read_text() for own in listed.values())


def test_the_wheel_has_every_folder_of_presets() -> None:
    """Hatch copies the folders that are named: a new one must be."""
    build = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    folders = {f"cfgs/{name.split('/')[0]}" for name in files_of(CFGS)}
    others = {"samples/slurm.sh", "cfgs/workspaces.xml", *(f"docs/{name}" for name in ("start", "guides", "reference"))}
    assert build["targets"]["wheel"]["force-include"] == {f: f"nsys2prv_ng/bundled/{f}" for f in folders | others}


def test_installed_presets_are_copies(tmp_path: Path) -> None:
    folder = tmp_path / "my" / "cfgs"
    assert {path.relative_to(folder).as_posix() for path in install_presets(folder, force=False)} == set(files_of(CFGS))
    assert files_of(folder) == files_of(CFGS)
    install_presets(folder, force=False)  # the same files again are no loss


def test_presets_can_be_installed_over_themselves() -> None:
    before = files_of(CFGS)
    install_presets(CFGS, force=False)
    assert files_of(CFGS) == before


def test_other_files_are_replaced_only_by_force(tmp_path: Path) -> None:
    own = tmp_path / "basics" / "kernels.cfg"
    own.parent.mkdir()
    own.write_text("mine")
    with pytest.raises(UsageError, match="see force"):
        install_presets(tmp_path, force=False)
    assert files_of(tmp_path) == {"basics/kernels.cfg": b"mine"}
    install_presets(tmp_path, force=True)
    assert files_of(tmp_path) == files_of(CFGS)


def test_a_file_for_a_folder_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TranslationError, match="cannot be written") as error:
        install_presets(tmp_path / "file", force=False)
    assert "\n" not in str(error.value)
