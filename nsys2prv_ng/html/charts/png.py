"""Writes images with a palette as PNG (W3C's PNG specification, third edition).

The rows are not filtered, so that the script of the page can read the index of each pixel from the image itself.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Colour = tuple[int, int, int, int]
"""Red, green, blue and opacity, from 0 to 255."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER = 8, 3, 0, 0, 0
"""Bits of an index, colour type (palette), compression, filter method, interlacing (none)."""


def encode_png(indexes: npt.NDArray[np.uint8], palette: Sequence[Colour]) -> str:
    """Return an image of (rows, columns) indexes into a palette of at most 256 colours, as a data URL."""
    rows, columns = indexes.shape
    lines = np.zeros((rows, columns + 1), np.uint8)  # each starts with its filter: none
    lines[:, 1:] = indexes
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, *_HEADER)),
        (b"PLTE", bytes(part for colour in palette for part in colour[:3])),
        (b"tRNS", bytes(colour[3] for colour in palette)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    ]
    png = _SIGNATURE + b"".join(_make_chunk(*part) for part in parts)
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _make_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
