"""Memory beside pages that nobody may touch: what reads beyond a buffer ends its process."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np

_LIBC = ctypes.CDLL(None, use_errno=True)
_NOTHING_ALLOWED = 0


class GuardedMemory:
    """Arrays of bytes between two guard pages. Another array of the same size takes the place of the last one."""

    def __init__(self) -> None:
        self._mapped: dict[int, mmap.mmap] = {}
        self.made = 0

    def make(self, size: int) -> np.ndarray:
        """Return an array that ends where the upper guard page begins, or that starts where the lower one ends."""
        room = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        if room not in self._mapped:
            self._mapped[room] = _map_between_guards(room)
        self.made += 1
        before = mmap.PAGESIZE + (room - size if self.made // 2 % 2 else 0)
        array = np.frombuffer(self._mapped[room], np.uint8, size, before)
        array[:] = 0xA5
        return array


def _map_between_guards(room: int) -> mmap.mmap:
    mapped = mmap.mmap(-1, room + 2 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    for guard in (start, start + mmap.PAGESIZE + room):
        if _LIBC.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(mmap.PAGESIZE), _NOTHING_ALLOWED):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return mapped
