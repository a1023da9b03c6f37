"""The comparison that users get: the numbers, and how they show in a terminal and in a notebook."""

from __future__ import annotations

from html import escape

from nsys2prv_ng.comparison.model import ComparisonNumbers
from nsys2prv_ng.comparison.text import format_comparison
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.text.layout import WIDTH
from nsys2prv_ng.text.names import clean_name
from nsys2prv_ng.text.tables import cut_names

_LABEL = 40
"""Most characters of the name of a run."""


@dataclass(frozen=True, repr=False)
class Comparison(ComparisonNumbers):
    """A comparison of runs, as `compare` returns it: each later run with the first."""

    def __repr__(self) -> str:
        """Return one line with the verdicts: all numbers are a hundred thousand characters."""
        labels = [self.pairs[0].a.label, *(pair.b.label for pair in self.pairs)]
        first, *others = map(clean_name, cut_names(labels, _LABEL))
        verdicts = [f"{name} {pair.verdict.kind}" for name, pair in zip(others, self.pairs, strict=True)]
        return f"<{type(self).__name__} with {first}: {', '.join(verdicts)}>"

    def __str__(self) -> str:
        """Return the text that `nsys2prv-ng compare` prints."""
        return format_comparison(self, WIDTH)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return f"<pre>{escape(str(self))}</pre>"
