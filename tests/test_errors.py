"""The remedy of errors about names that are not known."""

from __future__ import annotations

import pytest

from nsys2prv_ng.errors import find_nearest, suggest

KNOWN = {"kernels": 1, "copies": 2, "nvtx": 3}


@pytest.mark.parametrize(
    ("names", "remedy"),
    [
        (["kernel"], "did you mean kernels?"),
        (["NVTX", "copy"], "did you mean nvtx, copies?"),
        (["kernel", "zzz"], "known are kernels, copies, nvtx"),  # half a remedy would hide the other half
        ([], "known are kernels, copies, nvtx"),
    ],
)
def test_the_nearest_of_each_name_or_all(names: list[str], remedy: str) -> None:
    assert suggest(names, KNOWN) == remedy


def test_likeness_decides_what_is_near() -> None:
    assert (find_nearest("kern", KNOWN), find_nearest("kern", KNOWN, 0.9)) == ("kernels", "")
