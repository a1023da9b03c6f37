"""The arguments of commands that are sorted out."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.cli.arguments import split_trace_and_cfgs
from nsys2prv_ng.errors import UsageError


def test_a_trace_and_its_cfgs():
    trace, one, two = Path("o.prv.gz"), Path("a.cfg"), Path("d/b.cfg")
    assert split_trace_and_cfgs([trace]) == (trace, [])
    assert split_trace_and_cfgs([one, trace, two]) == (trace, [one, two])
    with pytest.raises(UsageError, match="no trace to check"):
        split_trace_and_cfgs([one, two])
    with pytest.raises(UsageError, match=r"x\.prv: check takes one trace"):
        split_trace_and_cfgs([trace, one, Path("x.prv")])
