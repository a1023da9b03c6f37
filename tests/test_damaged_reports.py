"""Reports with random damage: each makes a sound trace, or ends in one line of text and leaves nothing.

Accounts are compared with plain SQL (tests/damage_truth.py).

More cases: `pytest tests/test_damaged_reports.py --damage 5000`. A case by its seed, and what was done to it:
`python -m tests.damage_worker samples 17`. What the damage has found has a small test beside the module concerned. With
NUMBA_BOUNDSCHECK=1, and NUMBA_CACHE_DIR set to another folder, compiled functions raise an error for a wrong index,
which otherwise crashes the process in some runs only.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.damage_worker import SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.all_sets]
ROUND = 3
"""Cases of a test, so that the tests of many cases show how far they are."""
SHARE = {"nodes": 1, "payloads": 1, "samples": 3, "exercises": 1, "shared": 2}
"""Of eight rounds, those of reports that are made or rewritten, of samples, and of other real reports."""


class Worker:
    """The process that translates, and another one after each crash."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._kind = ""

    def run(self, kind: str, seed: int) -> str:
        """What is wrong with a case, or the empty string."""
        process = self._started(kind)
        assert process.stdin and process.stdout
        found: dict[str, Any] = {"done": [], "wrong": ""}
        try:
            process.stdin.write(f"{seed}\n")
            process.stdin.flush()
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                in_time = bool(selector.select(SECONDS))
            line = process.stdout.readline() if in_time else ""
        except BrokenPipeError:
            in_time, line = True, ""
        if line:
            found = json.loads(line)
        else:
            self.close()
            how = f"the process ended with code {process.returncode}" if in_time else f"no end after {SECONDS} s"
            found["wrong"] = f"{how}: {(self._folder / 'errors').read_text()[-3000:]}"
        return found["wrong"] and "\n  ".join([f"{kind} {seed}:", *found["done"], found["wrong"]])

    def _started(self, kind: str) -> subprocess.Popen[str]:
        if self._process is None or self._kind != kind:
            self.close()
            whole = self._folder / kind
            whole.mkdir(exist_ok=True)
            command = [sys.executable, "-m", "tests.damage_worker", kind, str(whole)]
            with (self._folder / "errors").open("w") as errors:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
                )
            self._kind = kind
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    started = Worker(tmp_path_factory.mktemp("damage"))
    yield started
    started.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The cases that were asked for, in rounds."""
    rounds = max(metafunc.config.getoption("--damage") // ROUND, len(SHARE))
    first = metafunc.config.getoption("--damage-from")
    counts = {kind: -(-rounds * share // sum(SHARE.values())) for kind, share in SHARE.items()}
    cases = [(kind, first + ROUND * i) for kind, count in counts.items() for i in range(count)]
    groups = [pytest.mark.group(f"damage {kind} {number % 2}") for number, (kind, _) in enumerate(cases)]
    metafunc.parametrize(
        ("kind", "first"),
        [
            pytest.param(kind, seed, id=f"{kind}-{seed}", marks=group)
            for (kind, seed), group in zip(cases, groups, strict=True)
        ],
    )


def test_damaged_reports(worker: Worker, kind: str, first: int) -> None:
    wrong = [found for seed in range(first, first + ROUND) if (found := worker.run(kind, seed))]
    assert not wrong, "\n".join([f"{len(wrong)} of {ROUND} cases end badly", *wrong])
