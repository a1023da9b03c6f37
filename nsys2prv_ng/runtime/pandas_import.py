"""Keeps pandas from being imported before it is needed.

pyarrow imports it with the first array that it makes, in order to convert arrays, which nothing here lets it do. That
takes 0.2 s and 40 MB of each command. A command owns its process, so it may refuse that; a Python program may not.
"""

from __future__ import annotations

import sys


class _Refusal:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"{name} is not needed yet", name=name)


def refuse_pandas() -> None:
    """Let imports of pandas fail in this process, and in those forked from it, until `allow_pandas` is called."""
    sys.meta_path.insert(0, _Refusal)


def allow_pandas() -> None:
    """Let imports of pandas succeed. Call this before a module that needs it is imported."""
    if _Refusal in sys.meta_path:
        sys.meta_path.remove(_Refusal)
