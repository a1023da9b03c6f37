"""Compares schema versions of exports (major, minor, micro), and lists what exports have since which version."""

from __future__ import annotations

import re
from collections.abc import Iterable

Version = tuple[int, int, int]

NEWEST_SCHEMA = (3, 28)
"""Newest schema version (major, minor) that is known; newer ones are read with a warning."""

FIRST_WITH_VCLOCK: Version = (3, 28, 0)
"""nsys 2026.4 was the first with vClock (its release notes), and exports this schema (its schema reference)."""

_FIRST_WITH_JSON_OPTION: Version = (3, 11, 4)
"""Before this version, nsys export had no option for payloads, and exports lacked them (seen in 2022.4 to 2024.2)."""
_FIRST_WITH_BLOBS_ONLY: Version = (3, 24, 0)
"""Since this version, NVTX payloads are bytes; before, they were JSON text."""

JSON_OPTION, BLOBS_OPTION = "--include-json=true", "--include-blobs=true"
"""Options of nsys export that keep payloads."""

_VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})(?:\.([0-9]{1,9}))?")


def parse_schema_version(version: str) -> Version | None:
    """Return the three numbers of a version, 0 for a missing one; None for text that is not a version."""
    match = _VERSION.match(version)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def check_schema_version(version: str) -> list[str]:
    """Return a warning if a version is newer than the newest known version."""
    parsed = parse_schema_version(version)
    if parsed is None or parsed[:2] <= NEWEST_SCHEMA:
        return []
    newest = ".".join(map(str, NEWEST_SCHEMA))
    return [f"schema version {version} is newer than {newest}, the newest that is known: check the result"]


def choose_payload_option(version: str) -> str | None:
    """Return the option of nsys export that keeps NVTX payloads in exports of a schema version.

    Return an empty text if that nsys has no such option, and None for an unknown version.
    """
    parsed = parse_schema_version(version)
    if parsed is None:
        return None
    if parsed >= _FIRST_WITH_BLOBS_ONLY:
        return BLOBS_OPTION
    return JSON_OPTION if parsed >= _FIRST_WITH_JSON_OPTION else ""


def describe_payload_remedy(versions: Iterable[str]) -> str:
    """Return how to export reports with payloads, given the schema versions of exports without payloads."""
    options = {choose_payload_option(version) for version in versions}
    if options == {""}:
        return f"export with a newer nsys and {BLOBS_OPTION}"
    if options in ({JSON_OPTION}, {BLOBS_OPTION}):
        return f"export with {options.pop()}"
    return f"export with {BLOBS_OPTION}, or with {JSON_OPTION} before schema 3.24"
