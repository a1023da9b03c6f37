"""Events of read-backs: on host threads and GPUs, at the times that plain SQL and a loop find."""

from __future__ import annotations

import pytest

from tests.readback_truth import find_program, list_waits
from tests.translated import Translated, Translations

READBACK, IDLE_AFTER = 63000450, 63000451
SYNCHRONIZATION = "Synchronization"


@pytest.fixture(scope="module")
def translated(translations: Translations) -> Translated:
    return translations([find_program("heat-a")])


def test_intervals_are_those_of_waits_and_of_idle_times(translated: Translated) -> None:
    waits, idles = list_waits(translated.reports[0])
    truth = {
        READBACK: [(wait.begin, wait.end, wait.operation) for wait in waits],
        IDLE_AFTER: [(idle.begin, idle.end, idle.wait.operation) for idle in idles],
    }
    for event_type, expected in truth.items():
        found = translated.intervals(event_type)
        begins = found["begin"] - found["begin"].min()
        lengths = found["end"] - found["begin"]
        first = min(begin for begin, _, _ in expected)
        wanted = sorted((begin - first, end - begin, name or SYNCHRONIZATION) for begin, end, name in expected)
        assert sorted(zip(begins, lengths, found["name"], strict=True)) == wanted
