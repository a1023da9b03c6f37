"""Defines Paraver's event types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from nsys2prv_ng.value_class import ValueClass


class EventType(ValueClass):
    """An event type of Paraver.

    `values`: labels of fixed values. `names`: a namespace, in which names get dense ids from 1 (types with the same
    namespace share the ids). `interval`: a non-zero value opens and 0 closes; otherwise the event is a point or a
    quantity. `precision`: the trace contains value * 10**precision. Only (number, family, member) identify a type.
    """

    number: int
    label: str = field(compare=False)
    source: str = field(compare=False)
    unit: str = field(default="", compare=False)
    precision: int = field(default=0, compare=False)
    interval: bool = field(default=False, compare=False)
    values: Mapping[int, str] | None = field(default=None, compare=False)
    names: str = field(default="", compare=False)
    family: str = ""
    member: str = ""

    @property
    def title(self) -> str:
        """Label with the unit, as in the .pcf."""
        return f"{self.label} [{self.unit}]" if self.unit else self.label
