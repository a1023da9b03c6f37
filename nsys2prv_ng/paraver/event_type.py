"""Defines Paraver's event types, and formats labels on one line."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

LABEL_LENGTH = 500
"""Longer labels are cut: wxParaver's legend hangs on labels of some thousand characters."""


def to_one_line(label: str) -> str:
    """Return a label without line breaks, tabs and control characters: 1 to LABEL_LENGTH characters."""
    text = re.sub(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+", " ", label).strip()
    if len(text) > LABEL_LENGTH:
        # Long names with the same start stay different: the checksum at the end depends on all of the name.
        text = f"{text[: LABEL_LENGTH - 10].rstrip()} #{zlib.crc32(text.encode('utf-8', 'replace')):08x}"
    return text or "(unnamed)"


@dataclass(frozen=True)
class EventType:
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
