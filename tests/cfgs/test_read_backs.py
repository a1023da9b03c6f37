"""What the preset of read-backs shows: the times that plain SQL and a loop find."""

from __future__ import annotations

from tests.cfgs.recorded import show
from tests.readback_truth import find_program, list_waits
from tests.translated import Translations


def test_times_of_waits_and_of_idle_gpus(translations: Translations) -> None:
    report = find_program("heat-a")
    shown = show("analysis/read_backs", translations([report]).trace).histograms
    assert len(shown) == 2
    for histogram, times in zip(shown, list_waits(report), strict=True):
        expected = sum(each.end - each.begin for each in times)
        assert expected and round(histogram.frame.to_numpy().sum() * 1000) == expected
