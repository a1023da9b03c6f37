"""Writes commands that can be pasted into a shell: what was typed, with other options."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from nsys2prv_ng.text.option import list_options

_FEW = 3
"""Most reports that are written one by one."""


def quote(word: str | Path) -> str:
    """Return a word for a shell. Characters that control a terminal are escaped for bash, ksh and zsh: $'...'."""
    text = os.fspath(word)
    if text.isprintable():
        return shlex.quote(text)
    escaped = (chr(byte) if 32 <= byte < 127 and byte not in b"\\'" else f"\\x{byte:02x}" for byte in os.fsencode(text))
    return "$'" + "".join(escaped) + "'"


def quote_path(path: str | Path) -> str:
    """Return a path for a shell. A path that starts with a dash gets ./ before it, and is not taken for an option."""
    text = os.fspath(path)
    return quote(f"./{text}" if text.startswith("-") else text)


def quote_reports(reports: Sequence[Path]) -> str:
    """Return reports for a shell: as one pattern if there are many and it matches no other file."""
    if len(reports) <= _FEW:
        return " ".join(map(quote_path, reports))
    names = [report.name for report in reports]
    start = os.path.commonprefix(names)  # noqa: RUF071 (of names, not of paths)
    end = os.path.commonprefix([name[len(start) :][::-1] for name in names])[::-1]  # noqa: RUF071
    folder = reports[0].parent
    is_pattern = start and len({report.parent for report in reports}) == 1
    with suppress(OSError):
        found = {entry.name for entry in folder.iterdir() if entry.name.startswith(start) and entry.name.endswith(end)}
        if is_pattern and found == set(names):
            return f"{quote_path(folder / start)}*{quote(end) if end else ''}"
    return " ".join(map(quote_path, reports))


def spell_options(options: object, without: Iterable[str] = ()) -> list[str]:
    """Return the words for options that are not their defaults, as they are typed."""
    words: list[str] = []
    for name, option in list_options(type(options)).items():
        value = getattr(options, name)
        if name not in without and value != option.default:
            for typed in option.spell(value):
                words += [option.flag, quote(typed)] if typed else [option.flag]
    return words


def join_command(command: str, *words: str) -> str:
    """Return a command of the program, given words that are quoted already."""
    return " ".join(["nsys2prv-ng", command, *words])
