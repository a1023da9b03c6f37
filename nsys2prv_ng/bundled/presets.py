"""Finds the files that come with the program; lists and copies the presets (.cfg) and filters (.xml) among them.

A file that lists the presets in the menus of wxParaver comes with them. It contains file paths, which differ in a copy.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape, unescape

from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.runtime.files import locate_bundled, read_input
from nsys2prv_ng.value_class import ValueClass

WORKSPACES = "workspaces.xml"
_BEGIN, _END = "ConfigFile.BeginDescription", "ConfigFile.EndDescription"


class Preset(ValueClass):
    """A preset: its folder and name (`analysis/gpu-gaps`), the first line of its description, and its file."""

    name: str
    summary: str
    path: Path


def locate_presets() -> Path:
    """Return the folder of the presets."""
    return locate_bundled("cfgs")


def list_presets() -> list[Preset]:
    """Return all presets, sorted by name."""
    return _list_files("*/*.cfg", _read_summary)


def list_filters() -> list[Preset]:
    """Return the files for Paraver's own filter and software counters, sorted by name."""
    return _list_files("filters/*.xml", _read_comment)


def _list_files(pattern: str, read: Callable[[Path], str]) -> list[Preset]:
    folder = locate_presets()
    paths = sorted(folder.glob(pattern))
    return [Preset(path.relative_to(folder).with_suffix("").as_posix(), read(path), path) for path in paths]


def _read_comment(path: Path) -> str:
    """Return the first comment of a file, which is its second line."""
    return unescape(path.read_text(encoding="utf-8").splitlines()[1].removeprefix("<!-- ").removesuffix(" -->"))


def _read_summary(path: Path) -> str:
    """Return the first line of a preset's description."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return lines[lines.index(_BEGIN) + 1 : lines.index(_END)][0]


def install_presets(directory: Path, *, force: bool) -> list[Path]:
    """Copy presets and filters into a directory, with their folders, and write their menus there; return the copies.

    Raises UsageError if that would replace other files without `force`, and TranslationError if a file cannot be
    written.
    """
    presets = list_presets()
    copies = {directory / f"{preset.name}.cfg": preset.path for preset in presets}
    copies |= {directory / f"{preset.name}.xml": preset.path for preset in list_filters()}
    sources = copies | {directory / WORKSPACES: locate_presets() / WORKSPACES}
    try:
        contents = {copy: source.read_bytes() for copy, source in copies.items()}
        contents[directory / WORKSPACES] = _make_menus(directory, presets)
        changed = {
            copy: content
            for copy, content in contents.items()
            if not copy.exists() or (read_input(copy) != content and not copy.samefile(sources[copy]))
        }
        others = [copy for copy in changed if copy.exists()]
        if others and not force:
            more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
            raise UsageError(f"{others[0]}{more}: exists and differs from the preset; replace it", see=("force",))
        for copy, content in changed.items():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
    except OSError as error:
        raise TranslationError(f"{error.filename or directory}: cannot be written: {error.strerror}") from error
    return list(copies)


def _make_menus(directory: Path, presets: list[Preset]) -> bytes:
    """Return the text of the menus with the paths of the presets in a directory."""
    text = (locate_presets() / WORKSPACES).read_text(encoding="utf-8")
    for preset in presets:
        path = Path(os.path.realpath(directory)) / f"{preset.name}.cfg"
        text = text.replace(f"<first>{preset.name}.cfg</first>", f"<first>{escape(str(path))}</first>")
    return text.encode()
