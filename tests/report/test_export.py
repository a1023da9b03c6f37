"""Finding nsys and exporting with it. The nsys here is a script that behaves, and fails, as the real one does."""

import contextlib
import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.report import export
from nsys2prv_ng.report import nsys as nsys_of
from nsys2prv_ng.report.nsys import Nsys, find_nsys
from tests.report.fake_nsys import HELP_2024, HELP_2026, Fake, age, export_report, hide_nsys, write_export, write_report
from tests.tiers import cases


@pytest.fixture(autouse=True)
def _no_nsys_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide_nsys(monkeypatch, tmp_path)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return write_report(tmp_path / "my job (1)" / "train.rank 0.nsys-rep")


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path / "nsight systems" / "bin")


def _value(path: Path, name: str, table: str = "META_DATA_EXPORT") -> str:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return str(database.execute(f"SELECT value FROM {table} WHERE name = ?", (name,)).fetchone()[0])


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _message(error: pytest.ExceptionInfo[TranslationError]) -> str:
    text = str(error.value)
    assert "\n" not in text and "\r" not in text, "one line"
    return text


def _make_read_only(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int = errno.EROFS) -> None:
    """No new files in the folder: by its permissions; for root, whom they do not bind, as a read-only mount says."""
    folder.chmod(0o555)
    if os.geteuid() != 0:
        return
    real = tempfile.mkdtemp

    def mkdtemp(suffix: str | None = None, prefix: str | None = None, dir: Path | None = None) -> str:
        if dir is not None and Path(dir) == folder:
            raise OSError(code, os.strerror(code), str(dir))
        return real(suffix, prefix, dir)

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)


# ---------------------------------------------------------------------------------------------------- finding nsys


@pytest.mark.parametrize(
    ("output", "version", "release"),
    [
        ("NVIDIA Nsight Systems version 2024.2.3.38-242334140272v0", "2024.2.3.38", (2024, 2, 3)),
        ("NVIDIA Nsight Systems version 2022.4.2.1-df9881f", "2022.4.2.1", (2022, 4, 2)),
        ("2022.4.2.1-df9881f", "2022.4.2.1", (2022, 4, 2)),
        ("NVIDIA Nsight Systems version 2025.3.2.474-253236389321v0", "2025.3.2.474", (2025, 3, 2)),
        ("NVIDIA Nsight Systems version 2025.2", "2025.2", (2025, 2, 0)),
        (
            "WARNING: license 1.2\nNVIDIA Nsight Systems version 2023.4.4.54-234433681190v0\n",
            "2023.4.4.54",
            (2023, 4, 4),
        ),
    ],
)
def test_version_is_read_from_all_forms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, version: str, release: tuple[int, ...]
) -> None:
    fake = Fake(tmp_path / "bin", version=output)
    monkeypatch.setenv("PATH", str(fake.folder))
    nsys = find_nsys()
    assert nsys is not None
    assert (nsys.path, nsys.version, nsys.release) == (fake.path, version, release)


def test_nowhere_is_none() -> None:
    assert find_nsys() is None


@pytest.mark.slow
@pytest.mark.parametrize("inside", ["", "bin", "target-linux-x64", "target-linux-sbsa-armv8"])
def test_nsys_home_wins_over_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str) -> None:
    on_path = Fake(tmp_path / "path", version="version 2026.1.1.1")
    home = Fake(tmp_path / "home" / inside, version="version 2023.1.1.1")
    monkeypatch.setenv("PATH", str(on_path.folder))
    monkeypatch.setenv("NSYS_HOME", str(tmp_path / "home"))
    assert find_nsys() == Nsys(home.path, "2023.1.1.1")


@pytest.mark.slow
@pytest.mark.parametrize("home", ["", "empty", "does/not/exist"])
def test_path_serves_where_nsys_home_holds_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    on_path = Fake(tmp_path / "path")
    monkeypatch.setenv("PATH", str(on_path.folder))
    monkeypatch.setenv("NSYS_HOME", str(tmp_path / home) if home else "")
    found = find_nsys()
    assert found is not None and found.path == on_path.path


@pytest.mark.slow
def test_newest_of_the_install_folders(tmp_path: Path) -> None:
    for version in ("2024.10.1.5", "2024.9.2.7", "2023.4.4.54"):  # as text, 2024.9 would be the newest
        Fake(tmp_path / "opt" / version / "bin", version=f"NVIDIA Nsight Systems version {version}-1v0")
    assert find_nsys() == Nsys(tmp_path / "opt/2024.10.1.5/bin/nsys", "2024.10.1.5")


def test_path_wins_over_the_install_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Fake(tmp_path / "opt/new/bin", version="2026.1.1.1")
    on_path = Fake(tmp_path / "path", version="2022.4.2.1-df9881f")
    monkeypatch.setenv("PATH", str(on_path.folder))
    assert find_nsys() == Nsys(on_path.path, "2022.4.2.1")


@pytest.mark.slow
def test_what_does_not_run_is_no_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Fake(tmp_path / "opt/fails/bin", version="2026.1.1.1", version_code=1)
    Fake(tmp_path / "opt/says-nothing/bin", version="no version here 1.2.3")
    Fake(tmp_path / "opt/not-executable/bin", version="2026.1.1.1").path.chmod(0o644)
    other_architecture = Fake(tmp_path / "opt/other/bin").path
    other_architecture.write_bytes(b"\x7fELF of another machine")
    (tmp_path / "opt/a-folder/bin/nsys").mkdir(parents=True)
    good = Fake(tmp_path / "opt/good/bin", version="2022.1.1.1")
    assert find_nsys() == Nsys(good.path, "2022.1.1.1")
    monkeypatch.setenv("NSYS_HOME", str(tmp_path / "opt/fails"))
    assert find_nsys() == Nsys(good.path, "2022.1.1.1")


def test_a_hanging_nsys_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = tmp_path / "path" / "nsys"
    hanging.parent.mkdir()
    hanging.write_text("#!/bin/sh\n/bin/sleep 60\n")
    hanging.chmod(0o755)
    monkeypatch.setenv("PATH", str(hanging.parent))
    monkeypatch.setattr(nsys_of, "_VERSION_TIMEOUT", 0.3)
    begin = time.monotonic()
    assert find_nsys() is None
    assert time.monotonic() - begin < 30


def test_real_install_patterns_are_absolute() -> None:
    # the fixture replaces the patterns, so read them from the source
    source = Path(nsys_of.__file__).read_text().split("INSTALL_FOLDERS = (")[1].split(")")[0]
    patterns = [line.strip().strip('",') for line in source.strip().splitlines()]
    assert len(patterns) >= 7
    assert all(pattern.startswith("/") for pattern in patterns)


# ------------------------------------------------------------------------------------------------------- exporting


@pytest.mark.slow
def test_export_is_beside_the_report(report: Path, fake: Fake, tmp_path: Path) -> None:
    made = export_report(report, tmp_path / "out", fake.nsys)
    assert made == report.with_name("train.rank 0.sqlite")
    assert _value(made, "REPORT") == "the report of rank 0"
    assert _names(report.parent) == {"train.rank 0.nsys-rep", "train.rank 0.sqlite"}
    assert not (tmp_path / "out").exists()
    [words] = fake.exports()
    output = words[words.index("--output") + 1]
    assert Path(output).parent != report.parent, "written under a temporary name"
    assert words == ["export", "--type", "sqlite", "--force-overwrite", "true", "--output", output, str(report)]


@pytest.mark.slow
def test_export_has_the_permissions_of_any_new_file(report: Path, fake: Fake, tmp_path: Path) -> None:
    made = export_report(report, tmp_path, fake.nsys)
    plain = report.parent / "plain"
    plain.touch()
    assert made.stat().st_mode == plain.stat().st_mode


@pytest.mark.slow
def test_nsys_is_found_when_none_is_given(
    report: Path, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(fake.folder))
    assert export_report(report, tmp_path) == report.with_suffix(".sqlite")
    assert len(fake.exports()) == 1


@pytest.mark.slow
def test_relative_report(report: Path, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(report.parent)
    assert export_report(Path(report.name), Path("out"), fake.nsys) == report.with_suffix(".sqlite")


@pytest.mark.slow
def test_blobs_and_json_are_asked_for_only_where_nsys_knows_them(report: Path, tmp_path: Path) -> None:
    new = Fake(tmp_path / "new", product="2026.2.1.210", help=HELP_2026)
    made = export_report(report, tmp_path, new.nsys)
    assert {"--include-blobs=true", "--include-json=true"} <= set(new.exports()[0])
    assert _value(made, "EXPORT_PARAM_INCLUDE_BLOBS") == "true"

    made.unlink()
    half = Fake(tmp_path / "half", help=HELP_2024 + "  --include-json=\n")
    export_report(report, tmp_path, half.nsys)
    assert [word for word in half.exports()[0] if word.startswith("--include")] == ["--include-json=true"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made_by", "nsys_says"),
    [
        ("2024.2.3.38", "2024.2.3.38"),
        ("2025.3.2.0", "2025.3.2.474"),
        ("2025.3.2.0", "2025.3.2"),
        ("2025.3.2", "2025.3.2.0"),
    ],
)
def test_newer_export_of_the_same_version_is_kept(
    report: Path, fake: Fake, tmp_path: Path, made_by: str, nsys_says: str
) -> None:
    there = report.with_suffix(".sqlite")
    write_export(there, made_by)
    before = there.read_bytes()
    assert export_report(report, tmp_path, Nsys(fake.path, nsys_says)) == there
    assert there.read_bytes() == before and fake.exports() == []


@pytest.mark.slow
def test_export_of_2022_is_recognised(report: Path, fake: Fake, tmp_path: Path) -> None:
    fake.behave(table="EXPORT_META_DATA", product="2022.4.2.1")
    first = export_report(report, tmp_path, fake.nsys)
    assert _value(first, "REPORT", "EXPORT_META_DATA") == "the report of rank 0"
    assert export_report(report, tmp_path, fake.nsys) == first
    assert len(fake.exports()) == 1


@pytest.mark.parametrize(
    "made_by",
    cases(
        ["2024.2.2.38", "2024.3.3.38", "2023.2.3.38", "2024.2.30.38", "2024.2", "", None, "2025.3.2.0"], push=4, quick=2
    ),
)
def test_export_of_another_version_is_made_again(report: Path, fake: Fake, tmp_path: Path, made_by: str | None) -> None:
    there = report.with_suffix(".sqlite")
    write_export(there, made_by)
    assert export_report(report, tmp_path, fake.nsys) == there
    assert _value(there, "REPORT") == "the report of rank 0"
    assert len(fake.exports()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0, 50])
def test_export_not_newer_than_the_report_is_made_again(
    report: Path, fake: Fake, tmp_path: Path, seconds: float
) -> None:
    there = report.with_suffix(".sqlite")
    write_export(there)
    when = report.stat().st_mtime_ns - int(seconds * 1e9)
    os.utime(there, ns=(when, when))
    export_report(report, tmp_path, fake.nsys)
    assert _value(there, "REPORT") == "the report of rank 0"


@pytest.mark.slow
@pytest.mark.parametrize(("blobs", "again"), [("true", False), ("false", True)])
def test_export_without_blobs_is_made_again_where_nsys_has_them(
    report: Path, tmp_path: Path, blobs: str, again: bool
) -> None:
    """`nsys stats` and `nsys profile --export=sqlite` leave an export without NVTX payloads beside the report."""
    new = Fake(tmp_path / "new", product="2026.2.1.210", help=HELP_2026)
    there = report.with_suffix(".sqlite")
    write_export(there, "2026.2.1.210", EXPORT_PARAM_INCLUDE_BLOBS=blobs, EXPORT_PARAM_INCLUDE_JSON="true")
    export_report(report, tmp_path, new.nsys)
    assert len(new.exports()) == again


# ---------------------------------------------------------------------------------------------------- foreign files


def _foreign_text(path: Path) -> None:
    path.write_text("my thesis")


def _foreign_empty(path: Path) -> None:
    path.touch()


def _foreign_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE StringIds (id INTEGER)")  # but not what an export says of itself


def _foreign_other_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")


@pytest.mark.parametrize("foreign", [_foreign_text, _foreign_empty, _foreign_database, _foreign_other_database])
@pytest.mark.parametrize("seconds", [0, 200])
def test_foreign_file_is_never_overwritten(report: Path, fake: Fake, tmp_path: Path, foreign, seconds: float) -> None:  # type: ignore[no-untyped-def]
    there = report.with_suffix(".sqlite")
    foreign(there)
    age(there, seconds)
    before = there.read_bytes()
    with pytest.raises(TranslationError) as error:
        export_report(report, tmp_path, fake.nsys)
    assert str(there) in _message(error) and "move it away" in _message(error)
    assert there.read_bytes() == before and fake.exports() == []
    assert _names(report.parent) == {report.name, there.name}


def test_folder_and_dangling_link_in_the_place_of_the_export(report: Path, fake: Fake, tmp_path: Path) -> None:
    there = report.with_suffix(".sqlite")
    there.mkdir()
    with pytest.raises(TranslationError, match="not an nsys export"):
        export_report(report, tmp_path, fake.nsys)
    there.rmdir()
    there.symlink_to(tmp_path / "nowhere")
    with pytest.raises(TranslationError, match="not an nsys export"):
        export_report(report, tmp_path, fake.nsys)
    assert there.is_symlink()


@pytest.mark.slow
def test_foreign_file_that_comes_during_the_export_stays(report: Path, fake: Fake, tmp_path: Path) -> None:
    fake.behave(sleep=0.6)
    there = report.with_suffix(".sqlite")
    writer = threading.Timer(0.3, _foreign_text, [there])
    writer.start()
    with pytest.raises(TranslationError, match="not an nsys export"):
        export_report(report, tmp_path, fake.nsys)
    writer.join()
    assert there.read_text() == "my thesis"
    assert _names(report.parent) == {report.name, there.name}


# --------------------------------------------------------------------------------------------------------- no nsys


def test_no_nsys_says_where_it_was_looked_for(report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSYS_HOME", str(tmp_path / "empty"))
    with pytest.raises(TranslationError) as error:
        export_report(report, tmp_path)
    message = _message(error)
    for part in (
        str(report),
        f"NSYS_HOME ({tmp_path / 'empty'})",
        "PATH",
        "/opt/nvidia",
        "nsys export --type sqlite",
        "module",
    ):
        assert part in message
    assert error.value.exit_code == 1


def test_no_nsys_but_an_export_from_elsewhere(report: Path, tmp_path: Path) -> None:
    there = report.with_suffix(".sqlite")
    write_export(there, "2031.1.1.1")
    assert export_report(report, tmp_path) == there


def test_no_nsys_and_an_older_export(report: Path, tmp_path: Path) -> None:
    there = report.with_suffix(".sqlite")
    write_export(there)
    age(there, 200)
    with pytest.raises(TranslationError, match="older than the report: `touch` it"):
        export_report(report, tmp_path)


def test_no_nsys_and_a_foreign_file(report: Path, tmp_path: Path) -> None:
    _foreign_text(report.with_suffix(".sqlite"))
    with pytest.raises(TranslationError, match="is not an nsys export; load the nsight-systems module"):
        export_report(report, tmp_path)


def test_no_report(tmp_path: Path, fake: Fake) -> None:
    with pytest.raises(TranslationError, match="no such report"):
        export_report(tmp_path / "none.nsys-rep", tmp_path, fake.nsys)


# ------------------------------------------------------------------------------------------------ read-only folders


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_read_only_folder(report: Path, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    _make_read_only(report.parent, monkeypatch, code)
    out = tmp_path / "new" / "out"
    made = export_report(report, out, fake.nsys)
    assert made.parent == out and made.name.startswith("train.rank 0-") and made.suffix == ".sqlite"
    assert _value(made, "REPORT") == "the report of rank 0"
    assert _names(report.parent) == {report.name} and _names(out) == {made.name}
    assert export_report(report, out, fake.nsys) == made
    assert len(fake.exports()) == 1, "found again"


@pytest.mark.slow
def test_reports_of_one_name_from_two_read_only_folders(
    tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for node in ("node0", "node1"):
        report = tmp_path / node / "report1.nsys-rep"
        report.parent.mkdir()
        report.write_text(f"of {node}")
        age(report, 100)
        _make_read_only(report.parent, monkeypatch)
        made.append(export_report(report, tmp_path / "out", fake.nsys))
    assert [_value(path, "REPORT") for path in made] == ["of node0", "of node1"]


def test_good_export_in_a_read_only_folder_is_used(
    report: Path, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = report.with_suffix(".sqlite")
    write_export(there)
    _make_read_only(report.parent, monkeypatch)
    assert export_report(report, tmp_path, fake.nsys) == there
    assert fake.exports() == []


@pytest.mark.slow
def test_foreign_file_in_a_read_only_folder_does_not_matter(
    report: Path, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _foreign_text(report.with_suffix(".sqlite"))
    _make_read_only(report.parent, monkeypatch)
    assert export_report(report, tmp_path / "out", fake.nsys).parent == tmp_path / "out"


def test_both_folders_read_only(report: Path, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    _make_read_only(report.parent, monkeypatch)
    _make_read_only(out, monkeypatch)
    with pytest.raises(TranslationError) as error:
        export_report(report, out, fake.nsys)
    assert str(report) in _message(error) and str(out) in _message(error) and "another output folder" in _message(error)


def test_output_folder_that_cannot_be_made(
    report: Path, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make_read_only(report.parent, monkeypatch)
    (tmp_path / "file").touch()
    with pytest.raises(TranslationError) as error:
        export_report(report, tmp_path / "file" / "out", fake.nsys)
    assert str(tmp_path / "file" / "out") in _message(error)


def test_full_disk_is_not_a_read_only_folder(
    report: Path, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mkdtemp(**_: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    with pytest.raises(TranslationError, match="No space left"):
        export_report(report, tmp_path, fake.nsys)


# --------------------------------------------------------------------------------------------------------- failures

NEWER_2024 = "Processing [==========100%]\r\nThe report is from a newer version. Please update your Nsight Systems.\n"
NEWER_2022 = "Exporting\rFATAL ERROR: Version number is invalid\nstd::exception::what: FileVersionException\n"


@pytest.mark.parametrize(
    ("behaviour", "parts"),
    [
        (
            {"code": 1, "says": "Generating SQLite file\nImportError: cannot read\n\n"},
            ["failed (exit code 1)", ": ImportError: cannot read;"],
        ),
        (
            {"code": 1, "says": "first problem\nProcessing 12 events: [==100%]\r[====  50%]\r\n   \n---\n"},
            [": first problem;"],
        ),
        ({"code": 3}, ["failed (exit code 3)", "it printed nothing"]),
        ({"late_code": 4, "says": "Error: a table is missing\n"}, ["failed (exit code 4)", "a table is missing"]),
        (
            {"silent": True, "says": "Error: the file is not a report\n"},
            ["wrote no whole export", "the file is not a report"],
        ),
        ({"silent": True}, ["wrote no whole export", "it printed nothing"]),
        ({"silent": True, "partial": True}, ["wrote no whole export"]),
        ({"code": 1, "says": NEWER_2024}, ["Please update your Nsight Systems", "NSYS_HOME", "newer Nsight Systems"]),
        ({"silent": True, "says": NEWER_2024}, ["Please update", "newer Nsight Systems"]),
        ({"code": 1, "says": NEWER_2022}, [": FATAL ERROR: Version number is invalid;", "newer Nsight Systems"]),
        (
            {"code": 1, "partial": True, "says": "SQLite error: database or disk is full\n"},
            ["database or disk is full", "free space"],
        ),
        ({"code": 1, "says": "write: No space left on device\n"}, ["No space left on device", "free space"]),
        ({"signal": int(signal.SIGKILL), "partial": True}, ["killed by signal SIGKILL", "memory"]),
        ({"code": 137}, ["killed by signal SIGKILL", "memory"]),
        ({"signal": int(signal.SIGSEGV), "says": "Importing\n"}, ["killed by signal SIGSEGV", ": Importing;"]),
    ],
)
def test_failure_is_told_in_one_line_and_leaves_nothing(
    report: Path, fake: Fake, tmp_path: Path, behaviour: dict[str, object], parts: list[str]
) -> None:
    fake.behave(**behaviour)
    with pytest.raises(TranslationError) as error:
        export_report(report, tmp_path / "out", fake.nsys)
    message = _message(error)
    for part in [str(report), "nsys 2024.2.3.38", *parts]:
        assert part in message
    assert _names(report.parent) == {report.name}
    assert error.value.exit_code == 1


@pytest.mark.slow
def test_failure_keeps_the_old_export(report: Path, fake: Fake, tmp_path: Path) -> None:
    there = report.with_suffix(".sqlite")
    write_export(there, "2022.4.2.1")
    before = there.read_bytes()
    fake.behave(code=1, partial=True)
    with pytest.raises(TranslationError):
        export_report(report, tmp_path, fake.nsys)
    assert there.read_bytes() == before
    assert _names(report.parent) == {report.name, there.name}


def test_nsys_that_vanished(report: Path, fake: Fake, tmp_path: Path) -> None:
    shutil.rmtree(fake.folder)
    with pytest.raises(TranslationError, match="cannot be started"):
        export_report(report, tmp_path, fake.nsys)
    assert _names(report.parent) == {report.name}


def test_output_that_is_not_text(report: Path, fake: Fake, tmp_path: Path) -> None:
    fake.path.write_text("#!/bin/sh\nprintf 'bad \\377\\376 bytes\\n'\nexit 1\n")
    with pytest.raises(TranslationError, match=r"bad .* bytes"):
        export_report(report, tmp_path, fake.nsys)


@pytest.mark.slow
def test_interrupt_leaves_nothing_and_stops_nsys(report: Path, fake: Fake, tmp_path: Path) -> None:
    fake.behave(partial=True, sleep=60)
    program = (
        "import signal, sys; from pathlib import Path\n"
        "from nsys2prv_ng.report.nsys import Nsys; from tests.report.fake_nsys import export_report\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # which a job in the background ignores
        "export_report(Path(sys.argv[1]), Path(sys.argv[2]), Nsys(Path(sys.argv[3]), '2024.2.3'))"
    )
    root = Path(export.__file__).parents[2]
    child = subprocess.Popen(
        [sys.executable, "-c", program, report, tmp_path / "out", fake.path],
        env={**os.environ, "PYTHONPATH": str(root)},
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while not any(report.parent.glob(".nsys2prv-export-*/*.sqlite")):
        assert child.poll() is None and time.monotonic() < deadline, child.communicate()
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in child.communicate(timeout=30)[1]
    assert _names(report.parent) == {report.name}
    nsys = int((fake.folder / "pid").read_text())
    while time.monotonic() < deadline and _alive(nsys):
        time.sleep(0.02)
    assert not _alive(nsys)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_two_exports_at_once_never_show_half_a_file(report: Path, fake: Fake, tmp_path: Path) -> None:
    fake.behave(slow=0.3)
    there = report.with_suffix(".sqlite")
    results: list[Path | BaseException] = []

    def run(delay: float) -> None:
        time.sleep(delay)
        try:
            results.append(export_report(report, tmp_path, fake.nsys))
        except BaseException as error:  # told to the test's thread
            results.append(error)

    threads = [threading.Thread(target=run, args=(delay,)) for delay in (0, 0.1)]
    for thread in threads:
        thread.start()
    seen = 0
    while any(thread.is_alive() for thread in threads):
        if there.exists():
            with contextlib.closing(sqlite3.connect(f"{there.as_uri()}?mode=ro", uri=True)) as database:
                tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            assert "last_table" in tables
            seen += 1
        time.sleep(0.005)
    assert results == [there, there] and seen > 0
    assert len(fake.exports()) == 2
    assert _value(there, "REPORT") == "the report of rank 0"
    assert _names(report.parent) == {report.name, there.name}


# ----------------------------------------------------------------------------------------------------- real exports

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("*.sqlite"))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_real_exports_are_recognised(tmp_path: Path, fake: Fake, sample: Path) -> None:
    with contextlib.closing(sqlite3.connect(f"{sample.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        query = "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_PRODUCT_VERSION'"
        version = database.execute(query).fetchone()[0]
    report = tmp_path / "r.nsys-rep"
    report.touch()
    age(report, 100)
    there = report.with_suffix(".sqlite")
    shutil.copyfile(sample, there)
    assert export_report(report, tmp_path, Nsys(fake.path, version)) == there
    assert fake.exports() == []


def test_there_are_samples() -> None:
    assert SAMPLES
