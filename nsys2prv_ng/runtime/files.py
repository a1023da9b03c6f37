"""Writes files that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

from nsys2prv_ng.errors import TranslationError


def write_atomically(file: Path, text: str) -> None:
    """Write a text file that appears whole or not at all. Raises TranslationError."""
    from tempfile import TemporaryDirectory

    try:
        with TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as folder:
            temporary = Path(folder) / file.name
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(file)
    except OSError as error:
        raise TranslationError(f"{file}: cannot be written: {error.strerror or error}") from None
