"""The text of a what-if analysis: no name of a report moves the cursor of a terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nsys2prv_ng.errors import escape_unprintable
from nsys2prv_ng.replay.changes import read_changes
from nsys2prv_ng.replay.numbers import Scenario, WhatIfNumbers
from nsys2prv_ng.summary.what_if_text import format_what_if

NAME = "range 'a\x1b[31m\tb\x00\u2028' = 0"
SAVES = Scenario(
    changes=read_changes(NAME),
    predicted_step_ns=1,
    saving_ns=9,
    share=0.9,
    limited_by=None,
    connected=True,
    measurable=True,
)


@pytest.mark.parametrize(
    "scenario",
    [SAVES, replace(SAVES, saving_ns=0, measurable=False), replace(SAVES, measurable=False, connected=False)],
    ids=["saves", "nothing measurable", "not connected"],
)
def test_names_have_no_control_characters(scenario: Scenario) -> None:
    numbers = WhatIfNumbers(
        steps=2, step_ns=10, noise_ns=1, limited_by=None, scenarios=[scenario], slack=[], unsplit_ns=0
    )
    text = format_what_if(numbers, 200)
    assert "range 'a [31m b" in text
    assert all(line == escape_unprintable(line) for line in text.split("\n"))
