"""Several reports exported at once. The nsys here is a script."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.report.export_all import locate_exports
from nsys2prv_ng.runtime.progress import Progress, Step
from tests.report.fake_nsys import Fake, age, hide_nsys, write_export
from tests.tiers import cases


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    hide_nsys(monkeypatch, tmp_path)
    made = Fake(tmp_path / "nsys" / "bin")
    monkeypatch.setenv("NSYS_HOME", str(tmp_path / "nsys"))
    return made


def _reports(folder: Path, count: int) -> list[Path]:
    reports = [folder / f"r{i}.nsys-rep" for i in range(count)]
    for report in reports:
        report.write_text(report.stem)
        age(report, 100)
    return reports


class _Seen(Progress):
    """Keeps what would be shown."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, int]] = []
        self.done: list[int] = []

    @contextmanager
    def step(self, title: str, total: int, unit: str) -> Iterator[Step]:
        self.steps.append((title, total))
        seen = self

        class _Step:
            def update(self, done: int) -> None:
                seen.done.append(done)

        yield _Step()


def _most_at_once(fake: Fake) -> int:
    running = most = 0
    for what, _, _ in fake.spans():
        running += 1 if what == "begin" else -1
        most = max(most, running)
    return most


def _left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.endswith(".nsys-rep")} - {"nsys", "empty"}


@pytest.mark.slow
@pytest.mark.parametrize("jobs", cases([1, 2, 9, 3], push=2))
def test_as_many_at_once_as_was_asked_for(fake: Fake, tmp_path: Path, jobs: int) -> None:
    fake.behave(sleep=1 if jobs > 1 else 0.2)
    reports = _reports(tmp_path, 4)
    seen = _Seen()
    exports = locate_exports(reports, tmp_path / "out", seen, jobs=jobs)
    assert exports == [report.with_suffix(".sqlite") for report in reports]
    assert _most_at_once(fake) == min(jobs, 4)
    assert len(fake.exports()) == 4
    assert seen.steps == [("exporting 4 of 4 reports with nsys 2024.2.3.38", 400)]
    assert sum(seen.done) == 400 and min(seen.done) > 0


@pytest.mark.slow
def test_one_on_each_core_if_not_asked(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5, 7}, raising=False)
    fake.behave(sleep=1)
    locate_exports(_reports(tmp_path, 5), tmp_path, Progress())
    assert _most_at_once(fake) == 3


@pytest.mark.slow
def test_what_nsys_prints_is_shown_while_it_runs(fake: Fake, tmp_path: Path) -> None:
    fake.behave(says="\rProcessing 5 events: [=7%  ]\rProcessing 5 events: [====40% ]", sleep=1.5)
    seen = _Seen()
    locate_exports(_reports(tmp_path, 2), tmp_path, seen, jobs=2)
    assert sum(seen.done) == 200 and seen.done != [200]
    assert any(sum(seen.done[:i]) == 80 for i in range(len(seen.done))), seen.done


@pytest.mark.slow
def test_good_exports_are_not_counted(fake: Fake, tmp_path: Path) -> None:
    reports = _reports(tmp_path, 3)
    write_export(reports[1].with_suffix(".sqlite"))
    seen = _Seen()
    locate_exports(reports, tmp_path, seen, jobs=2)
    assert seen.steps == [("exporting 2 of 3 reports with nsys 2024.2.3.38", 200)]
    again = _Seen()
    assert locate_exports(reports, tmp_path, again) == [report.with_suffix(".sqlite") for report in reports]
    assert again.steps == [] and len(fake.exports()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("jobs", cases([1, 2, 6], push=2))
def test_first_failure_in_the_order_of_the_reports(fake: Fake, tmp_path: Path, jobs: int) -> None:
    """The one that fails last by the clock is the first by the command line."""
    reports = _reports(tmp_path, 6)
    fake.behave(
        of_reports={
            "r1.nsys-rep": {"sleep": 1.5, "code": 1, "says": "Exportation error: the slow one\n"},
            "r2.nsys-rep": {"code": 1, "says": "Exportation error: the quick one\n"},
        }
    )
    with pytest.raises(TranslationError, match=r"r1\.nsys-rep: .*: the slow one;"):
        locate_exports(reports, tmp_path, Progress(), jobs=jobs)
    left = _left(tmp_path)
    assert left <= {f"r{i}.sqlite" for i in (0, 3, 4, 5)} and "r0.sqlite" in left
    started = {report for what, report, _ in fake.spans() if what == "begin"}
    assert left == {Path(name).stem + ".sqlite" for name in started} - {"r1.sqlite", "r2.sqlite"}, "what ended stays"
    if jobs == 1:
        assert started == {"r0.nsys-rep", "r1.nsys-rep"}


def test_no_nsys_names_the_first_report_without_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_nsys(monkeypatch, tmp_path)
    reports = _reports(tmp_path, 3)
    write_export(reports[0].with_suffix(".sqlite"))
    with pytest.raises(TranslationError, match=r"r1\.nsys-rep: no nsys to export it with"):
        locate_exports(reports, tmp_path, Progress(), jobs=2)
    write_export(reports[1].with_suffix(".sqlite"))
    write_export(reports[2].with_suffix(".sqlite"))
    assert len(locate_exports(reports, tmp_path, Progress())) == 3


@pytest.mark.slow
@pytest.mark.parametrize("number", cases([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], push=1))
def test_signal_ends_all_exports_and_leaves_nothing(fake: Fake, tmp_path: Path, number: int) -> None:
    fake.behave(partial=True, sleep=60)
    reports = _reports(tmp_path, 4)
    code = "import signal, os, sys; signal.pthread_sigmask(signal.SIG_UNBLOCK, [2, 15, 1])\n"
    code += "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # which nohup has set to ignore
    code += "os.sched_getaffinity = lambda _: {0, 1, 2}\nfrom nsys2prv_ng.cli.program import main; main()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, *reports, tmp_path / "out.prv"], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while len(fake.spans()) < 3:
        assert child.poll() is None and time.monotonic() < deadline, child.communicate()
        time.sleep(0.02)
    child.send_signal(number)
    error = child.communicate(timeout=30)[1]
    assert child.returncode == 128 + number
    assert error.splitlines()[-1].startswith("nsys2prv-ng: error: ") and "Traceback" not in error
    assert _left(tmp_path) == set()
    assert len(fake.spans()) == 3, "none was started, and none ended by itself"
    for _, _, pid in fake.spans():
        while time.monotonic() < deadline and _alive(pid):
            time.sleep(0.02)
        assert not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
