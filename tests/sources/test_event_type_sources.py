"""Every event type names the sources that write it; these are free strings, which must be names of sources."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.sources.registry import DERIVED, SOURCES
from tests.test_stability import list_types

NAMES = {source.name for source in (*SOURCES, *DERIVED)} | {"capture"}
"""The capture itself has a type too, which the translation writes without a source."""


def nvtx_types() -> Iterator[EventType]:
    """Yield a type of each member of an NVTX domain's block."""
    for name, make in inspect.getmembers(families, inspect.isfunction):
        if name.startswith("make_nvtx_"):
            yield make("domain", *(0 for _ in list(inspect.signature(make).parameters)[1:]))


def test_event_types_name_known_sources() -> None:
    types = [*list_types(), *nvtx_types()]
    unknown = {
        event_type.label: event_type.source
        for event_type in types
        if not {name.strip() for name in event_type.source.split(",")}
        <= {*NAMES, "waits", "critical_path", "steps", "readbacks", "overview"}
    }
    assert unknown == {}


def test_every_kind_of_types_is_looked_at() -> None:
    assert len(list_types()) > 150
    assert len(list(nvtx_types())) == 11
