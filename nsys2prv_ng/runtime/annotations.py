"""What annotations of a kernel's arguments may say beside numpy's types (runtime/signatures.py)."""

from __future__ import annotations

READ_ONLY = "read-only"
"""Marks an array that cannot be written."""
