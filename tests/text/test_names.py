from __future__ import annotations

import pytest

from nsys2prv_ng.text.names import match_patterns


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("step 3", "step 3", True),
        ("step 33", "step 3", False),
        ("step 33", "step ?3", True),
        ("a, sizes = [[8]]", "a, sizes = [[8]]", True),
        ("a, sizes = [[8]]", "a*[8]]", True),
        ("b", "[ab]", False),
        ("two\nlines", "two*", True),
        ("", "*", True),
        ("SMs", "sm*", False),
    ],
)
def test_matches(name, pattern, expected):
    assert match_patterns(name, pattern) is expected
    assert match_patterns("SMs Active", "sm*", ignore_case=True)
