"""Finds out how an export was made: its schema version, what its times count from, and which clock they are on.

An export made with --ts-normalize has the UTC of each event: by the system clock, or by vClock if the report contains
vClock data, which nsys supports since 2026.4 (NVIDIA's User Guide, Time Synchronization). The export does not record
which of these clocks it used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from nsys2prv_ng.report.diagnostics import TABLE as DIAGNOSTICS
from nsys2prv_ng.report.diagnostics import join_text

if TYPE_CHECKING:  # what compares saved summaries needs no library
    from nsys2prv_ng.report.database import Database

SYSTEM, VCLOCK, NORMALISED = "UTC", "vClock", "normalised time"
"""Clocks: the system clock, the virtual clock of nsys, and one of these two, unknown which."""

FARTHEST = 2**62
"""Times (ns) farther from 0 than this, 146 years, are damage. Sums of nearer times fit into 64 bits."""

CAPTURE = "META_DATA_CAPTURE"
"""Table of how the report was captured, with the environment of the program. SQLite exports have it; folder exports of
nsys 2023.4 lack it."""
_ABOUT_PROGRAM = re.compile(r"PROCESS_\d+:")
"""Names of entries about the profiled program, which are not capture options."""
_NAME = re.compile(r"(?<![a-z0-9])vclock(?![a-z0-9])", re.IGNORECASE)
_STARTED = "Profiling has started."
"""Message at the start of a capture, at time 0 unless the export was normalised or shifted."""
_ON_TARGET = 1
"""Timestamp type of messages whose time is on the clock of the events."""


EXPORT_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")
"""Tables of metadata about the export itself: since 2023, and before."""


def read_export_settings(database: Database) -> dict[str, str]:
    """Return what an export records about itself, by name. Entries without a value are missing."""
    pairs = (pair for table in EXPORT_TABLES for pair in database.read_pairs(table))
    return {name: str(value) for name, value in pairs if value is not None}


_PARTIAL = {"EXPORT_PARAM_TABLES_TO_EXPORT": "tables", "EXPORT_PARAM_TIMES_TO_EXPORT": "times"}


def check_parts(settings: Mapping[str, str]) -> list[str]:
    """Return warnings if an export contains only a part of its report, or more than its report."""
    warnings = []
    if chosen := [f"{part} {settings[name]}" for name, part in _PARTIAL.items() if settings.get(name)]:
        warnings.append(f"the export holds only a part of the report ({', '.join(chosen)})")
    if settings.get("EXPORT_PARAM_APPEND", "").lower() == "true":
        warnings.append("it was made with --append=true: if the file existed before, events may be there twice")
    return warnings


def read_exported_times(
    database: Database, utc_of_start: int | None, settings: dict[str, str]
) -> tuple[int | None, str]:
    """Return the UTC (ns) of timestamp 0 of an export, None if unknown, and the clock of its times.

    The export may have been made with --ts-normalize or --ts-shift.
    --ts-normalize adds the UTC of the start to every timestamp, and --ts-shift adds a number of ns. Neither changes the
    start of the session, `utc_of_start`. `settings`: what the export records about itself.
    """
    shift = settings.get("EXPORT_PARAM_TIME_SHIFT", settings.get("EXPORT_CONFIG_TIME_SHIFT", ""))
    shifted_by = (read_time(int(shift)) or 0) if re.fullmatch(r"-?[0-9]{1,19}", shift) else 0
    if is_normalised(settings):
        version = parse_schema_version(settings.get("EXPORT_SCHEMA_VERSION", ""))
        may_be_virtual = version is None or version >= FIRST_WITH_VCLOCK
        start = None if utc_of_start is None else utc_of_start + shifted_by
        return -shifted_by, (_find_clock(database, start) if may_be_virtual else SYSTEM)
    return None if utc_of_start is None else read_time(utc_of_start - shifted_by), SYSTEM


def is_normalised(settings: Mapping[str, str]) -> bool:
    """Return whether an export with these settings has the UTC of each event."""
    return settings.get("EXPORT_PARAM_TIME_NORMALIZE", "").lower() == "true"


def _find_clock(database: Database, start: int | None) -> str:
    """Return the clock of a normalised export. `start`: when the capture started by the system clock.

    If nothing names vClock, the message at the start may have the time `start` to the ns, so nothing else was added.
    This can also happen with vClock, on the node that all other nodes are compared with.
    """
    if names_vclock(database):
        return VCLOCK
    columns = database.read_objects(DIAGNOSTICS, ["timestamp", "timestampType", "text"])
    messages = zip(columns["timestamp"], columns["timestampType"], columns["text"], strict=True)
    started = [read_time(time) for time, kind, text in messages if text == _STARTED and kind in (_ON_TARGET, None)]
    return SYSTEM if started == [start] and start is not None else NORMALISED


def names_vclock(database: Database) -> bool:
    """Return whether the options of the capture or the messages of nsys name the plugin that records vClock's data."""
    captured = database.read_pairs(CAPTURE)
    options = (f"{name} {value}" for name, value in captured if not _ABOUT_PROGRAM.match(name))
    messages = (join_text(text) for text in database.read_objects(DIAGNOSTICS, ["text"])["text"])
    return any(_NAME.search(text) for texts in (options, messages) for text in texts)


def read_time(value: object) -> int | None:
    """Return a time in ns; None for a value that cannot be one."""
    time = read_integer(value)
    return time if time is not None and abs(time) < FARTHEST else None


def read_integer(value: object) -> int | None:
    """Return a number as an integer; None for any other value, and for a number beyond 64 bits."""
    is_integer = isinstance(value, int | float) and -(2**63) <= value < 2**63  # NaN is not
    return int(value) if is_integer else None  # type: ignore[call-overload]


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
