"""Keeps pandas from being imported before it is needed.

pyarrow imports it with the first array that it makes, in order to convert arrays, which nothing here lets it do. That
takes 0.2 s and 40 MB of each command. A command owns its process, so it may refuse that; a Python program may not.
"""

from __future__ import annotations

import sys


class _Refusal:
    """A finder of modules that refuses pandas."""

    is_on = False

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> None:
        if cls.is_on and name == "pandas":
            raise ModuleNotFoundError(f"{name} is not needed yet", name=name)


def refuse_pandas() -> None:
    """Let imports of pandas fail in this process, and in those forked from it, until `allow_pandas` is called."""
    _Refusal.is_on = True
    if _Refusal not in sys.meta_path:
        sys.meta_path.insert(0, _Refusal)


def allow_pandas() -> None:
    """Let imports of pandas succeed. Call this before a module that needs it is imported."""
    _Refusal.is_on = False  # the finder stays: another thread may be going through the list
