"""The result of a cut.

The fields are the keys of `CutResult.to_dict`. Programs rely on them: if a key or its meaning changes, CUT_VERSION must
change.
"""

from __future__ import annotations

from dataclasses import asdict

from nsys2prv_ng.errors import escape_unprintable
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.text.formatting import count_noun, format_bytes

CUT_VERSION = 1


@dataclass(frozen=True)
class CutResult:
    """What a cut read and wrote. Times are in ns of the trace that was cut, sizes in bytes."""

    trace: str
    output: str
    begin_ns: int
    end_ns: int
    tasks: int
    rows: int
    states: int
    events: int
    communications: int
    bytes: int
    """Length of the text of the .prv; `file_bytes` is the length of its file, which may be compressed."""
    file_bytes: int
    seconds: float
    warnings: list[str]

    def to_dict(self) -> dict[str, object]:
        """Return the fields in a form that `json.dumps` accepts."""
        return {"version": CUT_VERSION, **asdict(self)}

    def text(self) -> str:
        """Return a line for a terminal or a log."""
        return escape_unprintable(
            f"{self.output}: {format_bytes(self.file_bytes)}, {self.begin_ns / 1e9:.9g} s to {self.end_ns / 1e9:.9g} s"
            f" of {self.trace}, {count_noun(self.rows, 'row')}; {self.states:,} states, {self.events:,} event lines,"
            f" {self.communications:,} communications in {self.seconds:.1f} s"
        )
