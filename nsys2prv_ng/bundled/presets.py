"""Lists the Paraver presets (.cfg) that come with the program, and copies them to a folder of the user."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from nsys2prv_ng.bundled.files import locate_bundled
from nsys2prv_ng.errors import TranslationError, UsageError

_BEGIN, _END = "ConfigFile.BeginDescription", "ConfigFile.EndDescription"


@dataclass(frozen=True)
class Preset:
    """A preset: its folder and name (`analysis/gpu-gaps`), the first line of its description, and its file."""

    name: str
    summary: str
    path: Path


def locate_presets() -> Path:
    """Return the folder of the presets."""
    return locate_bundled("cfgs", "cfgs")


def list_presets() -> list[Preset]:
    """Return all presets, sorted by name."""
    folder = locate_presets()
    return [
        Preset(path.relative_to(folder).with_suffix("").as_posix(), _read_summary(path), path)
        for path in sorted(folder.glob("*/*.cfg"))
    ]


def _read_summary(path: Path) -> str:
    """Return the first line of a preset's description."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return lines[lines.index(_BEGIN) + 1 : lines.index(_END)][0]


def install_presets(directory: Path, *, force: bool) -> list[Path]:
    """Copy the presets into a directory, with their folders, and return the copies.

    Raises UsageError if that would replace other files without `force`, and TranslationError if it cannot be written.
    """
    copies = [(preset.path, directory / f"{preset.name}.cfg") for preset in list_presets()]
    try:
        others = [copy for source, copy in copies if copy.exists() and copy.read_bytes() != source.read_bytes()]
        if others and not force:
            more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
            raise UsageError(f"{others[0]}{more}: exists and differs from the preset; replace it", see=("force",))
        for source, copy in copies:
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not (copy.exists() and copy.samefile(source)):
                shutil.copyfile(source, copy)
    except OSError as error:
        raise TranslationError(f"{error.filename or directory}: cannot be written: {error.strerror}") from error
    return [copy for _, copy in copies]
