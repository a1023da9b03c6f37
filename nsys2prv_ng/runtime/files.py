"""Writes files that appear whole or not at all."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from nsys2prv_ng.errors import TranslationError


@contextmanager
def open_atomically(file: Path) -> Iterator[IO[bytes]]:
    """Open a file whose bytes appear whole at the end of the context, or not at all. Raises TranslationError."""
    temporary = file.parent / f".{file.name}.{secrets.token_hex(4)}.tmp"
    try:
        with temporary.open("wb") as opened:
            yield opened
        temporary.replace(file)
    except OSError as error:
        raise TranslationError(f"{file}: cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_atomically(file: Path, text: str) -> None:
    """Write a text file that appears whole or not at all. Raises TranslationError."""
    with open_atomically(file) as opened:
        opened.write(text.encode())
