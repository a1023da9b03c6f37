"""Records what Paraver's paramedir prints for the presets: PARAMEDIR=PROGRAM python -m cfgs.record [-k NAME]

It runs the tests that compare what presets show with the reports. What they ask for is printed, and kept where neither
the preset nor the trace has changed. If they pass, tests/data/paramedir has just that; with options of pytest, which
choose some of the tests, it keeps the rest as well. Needs all sets of reports.
"""

from __future__ import annotations

import os
import sys

import pytest

from tests.cfgs import recorded
from tests.conftest import HAS_LARGE_REPORTS

TESTS = ("tests/cfgs", "tests/summary/test_as_in_trace.py")


def main() -> int:
    """Write the recordings; return the exit code."""
    if "PARAMEDIR" not in os.environ or not HAS_LARGE_REPORTS:
        print(__doc__, file=sys.stderr)
        return 2
    recorded.recorder = recorded.read_all() if sys.argv[1:] else {}
    code = pytest.main(["--all-sets", "-p", "no:xdist", *sys.argv[1:], *TESTS])
    if not code:
        recorded.write_recordings(recorded.recorder)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
