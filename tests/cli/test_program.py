"""The command line: what it accepts, how it ends, what it leaves behind."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.program_runs import run, run_process
from tests.conftest import SAMPLES
from tests.examples import examples
from tests.tiers import cases

SAMPLE = SAMPLES / "mpi-4.rank0.sqlite"


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def assert_one_line(done, code):
    """One line on stderr after what a log shows, no traceback, and the exit code."""
    assert done.returncode == code, done.stderr
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    assert len(errors) == 1, done.stderr
    assert done.stderr.splitlines()[-1] == errors[0]
    assert "Traceback" not in done.stderr
    return errors[0]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """One translation of a sample, with its summary."""
    folder = tmp_path_factory.mktemp("reference")
    done = run_process(SAMPLE, folder / "out.prv", "--stats", folder / "out.json")
    assert done.returncode == 0, done.stderr
    return folder, done


def test_translates_and_prints_a_table(reference):
    folder, done = reference
    assert files(folder) == ["out.json", "out.pcf", "out.prv", "out.row"]
    assert "cuda_api" in done.stdout
    assert "reading 1 report" in done.stderr  # plain lines where stderr is no terminal


def test_summary_holds_what_the_table_shows(reference):
    folder, done = reference
    summary = json.loads((folder / "out.json").read_text())
    for source in summary["sources"]:
        assert source["read"] == source["written"] + sum(source["dropped"].values())
        assert f"{source['read']:,}" in done.stdout
    with sqlite3.connect(f"{SAMPLE.as_uri()}?mode=ro&immutable=1", uri=True) as report:
        calls = report.execute("select count(*) from CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()[0]
    assert next(s["read"] for s in summary["sources"] if s["name"] == "cuda_api") == calls


@pytest.mark.slow
def test_word_translate_and_quiet(reference, tmp_path):
    done = run("translate", "--quiet", SAMPLE, tmp_path / "out.prv")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "out.prv").read_bytes() == (reference[0] / "out.prv").read_bytes()


@pytest.mark.slow
def test_an_overview_with_folded_threads(reference, tmp_path):
    """The result prints how coarse it is, and the statistics have the same numbers."""
    done = run(SAMPLE, tmp_path / "out.prv", "--overview-trace", "--fold-threads", "--stats", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    stats = json.loads((tmp_path / "out.json").read_text())
    assert stats["overview"]["counter_rows"] == 1
    assert f"overview: counters of 1 GPU are shown in steps of {stats['overview']['counter_step_ns'] / 1e6:.2f} ms" in (
        done.stdout
    )
    assert "on a folded thread" in done.stdout
    assert json.loads((reference[0] / "out.json").read_text())["overview"] is None
    assert (tmp_path / "out.prv").stat().st_size < (reference[0] / "out.prv").stat().st_size / 2


def test_check_accepts_it(reference):
    done = run("check", reference[0] / "out.prv")
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_refuses_a_damaged_trace(reference, tmp_path):
    for path in reference[0].glob("out.*"):
        shutil.copy(path, tmp_path)
    lines = (tmp_path / "out.prv").read_text().splitlines(keepends=True)
    lines[100], lines[2000] = lines[2000], lines[100]
    (tmp_path / "out.prv").write_text("".join(lines))
    done = run("check", tmp_path / "out.prv")
    assert_one_line(done, 1)
    assert "out.prv" in done.stdout


@pytest.mark.slow
def test_a_report_called_check(reference, tmp_path):
    shutil.copy(SAMPLE, tmp_path / "check")
    done = run("./check", "out.prv", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.prv").read_bytes() == (reference[0] / "out.prv").read_bytes()


@pytest.mark.slow
def test_gzip_holds_the_same_lines(reference, tmp_path):
    import gzip

    assert run(SAMPLE, tmp_path / "a.prv.gz", "-q").returncode == 0
    assert run(SAMPLE, tmp_path / "b.prv", "--gzip", "-q").returncode == 0
    assert files(tmp_path) == ["a.pcf", "a.prv.gz", "a.row", "b.pcf", "b.prv.gz", "b.row"]
    text = (reference[0] / "out.prv").read_bytes()
    assert gzip.decompress((tmp_path / "a.prv.gz").read_bytes()) == text
    assert gzip.decompress((tmp_path / "b.prv.gz").read_bytes()) == text


def test_version_and_help():
    from nsys2prv_ng import __version__

    assert run("--version").stdout.strip() == f"nsys2prv-ng {__version__}"
    assert "translate" in run("--help").stdout
    assert "--sources" in run("translate", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["out.prv"], "no report to translate"),
        ([SAMPLE], "must be the trace"),
        ([SAMPLE, "other.sqlite"], "must be the trace"),
        ([SAMPLE, "out.txt"], "must be the trace"),
        ([SAMPLE, "old.prv", "out.prv"], "trace among the reports"),
        ([SAMPLE, SAMPLE, "out.prv"], "given twice"),
        ([SAMPLE, "no/folder/out.prv"], "no such folder"),
        ([SAMPLE, "out.prv", "--sources", "kernels,nothing"], "no source is called nothing; known are"),
        ([SAMPLE, "out.prv", "--sources", "Kernel,nvtxx"], "called Kernel, nvtxx; did you mean kernels, nvtx?"),
        ([SAMPLE, "out.prv", "--sources", ""], "no source is named; known are"),
        ([SAMPLE, "out.prv", "--align", "magic"], "magic"),
        ([SAMPLE, "out.prv", "--time", "5"], "FROM:TO"),
        ([SAMPLE, "out.prv", "--time", "5:6"], "unit"),
        ([SAMPLE, "out.prv", "--time", "2s:1s"], "FROM is after TO"),
        ([SAMPLE, "out.prv", "--time", "9999s:"], "into a trace that lasts"),
        ([SAMPLE, "out.prv", "--no-such-option"], "no-such-option"),
    ],
)
def test_usage(tmp_path, arguments, says):
    done = run(*arguments, cwd=tmp_path)
    assert says in assert_one_line(done, 2)
    assert files(tmp_path) == []


def test_last_argument_that_is_a_report_is_never_overwritten(tmp_path):
    for name in ("a.sqlite", "b.sqlite", "c.nsys-rep"):
        shutil.copy(SAMPLE, tmp_path / name)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for last in ("b.sqlite", "c.nsys-rep"):
        assert_one_line(run("a.sqlite", last, "--force", cwd=tmp_path), 2)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_reports_named_like_files_of_the_trace_stay(tmp_path):
    """By their name, a link, or another way to the same folder."""
    shutil.copy(SAMPLE, tmp_path / "out.pcf")
    shutil.copy(SAMPLE, tmp_path / "a.sqlite")
    (tmp_path / "b.row").symlink_to("a.sqlite")
    before = files(tmp_path)
    for report, output in (("out.pcf", "out.prv"), ("./out.pcf", tmp_path / "out.prv.gz"), ("b.row", "b.prv")):
        assert "is a report" in assert_one_line(run(report, output, "--force", cwd=tmp_path), 2)
        assert files(tmp_path) == before
    assert {(tmp_path / name).read_bytes() for name in before} == {SAMPLE.read_bytes()}


@pytest.mark.slow
@pytest.mark.parametrize("option", cases(["--stats", "--align-report"], push=1))
def test_side_files_take_no_other_files_place(tmp_path, option):
    shutil.copy(SAMPLE, tmp_path / "a.sqlite")
    (tmp_path / "mine.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name in ("a.sqlite", "out.prv", "out.pcf", "./out.row", "no/folder/x"):
        assert_one_line(run("a.sqlite", "out.prv", option, name, "--force", cwd=tmp_path), 2)
    assert "--force" in assert_one_line(run("a.sqlite", "out.prv", option, "mine.txt", cwd=tmp_path), 1)
    for special in ("/dev/null", "/dev/stdout"):
        done = run_process("a.sqlite", "out.prv", option, special, "--force", cwd=tmp_path)  # with a stdout of its own
        assert "/dev/" in assert_one_line(done, 1)
    assert Path("/dev/null").is_char_device()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--metrics", "SM*", "--sources", "kernels"], "gpu_metrics"),
        (["--nvtx-domain", "a", "--sources", "kernels"], "nvtx"),
        (["--nvtx-range", "a", "--sources", "kernels"], "nvtx"),
        (["--nvtx-domain", "nothing"], "no domain has this name"),
        (["--metrics-changes", "--time", "1ms:"], "cannot be combined with"),
        (["--ranks", "0-99999999999"], "longer than any job"),
    ],
)
def test_options_that_would_do_nothing(tmp_path, options, says):
    assert says in assert_one_line(run(SAMPLE, tmp_path / "out.prv", *options), 2)
    assert files(tmp_path) == []


def test_links_that_lead_to_themselves(tmp_path):
    """As reports, outputs and inputs: one line, and the other reports of a job are translated."""
    for ending in ("sqlite", "prv", "json", "csv", "pcf"):
        (tmp_path / f"loop.{ending}").symlink_to(f"loop.{ending}")
    report, out = tmp_path / "loop.sqlite", tmp_path / "out.prv"
    for words in ([report, out], ["summary", report], ["inspect", report], ["shard", report, tmp_path / "f"]):
        assert "loop.sqlite: is a link that leads to no file; name the file" in assert_one_line(run(*words), 1)
    assert "exists already" in assert_one_line(run(SAMPLE, tmp_path / "loop.prv"), 1)
    assert "no such folder" in assert_one_line(run(SAMPLE, report / "out.prv"), 2)
    for option, name in (("--stats", "loop.json"), ("--align-report", "loop.csv"), ("--labels-from", "loop.pcf")):
        assert name in assert_one_line(run(SAMPLE, out, option, tmp_path / name), 1)
    done = run(SAMPLE, report, out, "--quiet")
    assert done.returncode == 0 and "warning: skipped, as it cannot be read" in done.stderr and out.exists()


@pytest.mark.slow
def test_a_deleted_working_folder_is_named(tmp_path):
    gone = tmp_path / "gone"
    script = f"mkdir {gone} && cd {gone} && rmdir {gone} && exec {sys.executable} -m nsys2prv_ng"
    for words in ("summary r.sqlite", f"{SAMPLE} out.prv"):
        done = subprocess.run(["sh", "-c", f"{script} {words}"], capture_output=True, text=True, timeout=300)
        assert assert_one_line(done, 1).endswith("the working folder was deleted: change to another one")


def test_too_little_address_space(tmp_path):
    """Libraries cannot be loaded."""
    import resource

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (260_000 << 10, 260_000 << 10))

    line = assert_one_line(run(SAMPLE, tmp_path / "out.prv", preexec_fn=limit), 1)
    assert "out of memory" in line and line.endswith("See `ulimit -v`, and `ulimit -u` for threads")


def test_a_trace_among_the_reports(tmp_path):
    for command in ("summary", "compare"):
        line = assert_one_line(run(command, SAMPLE, *(["--", SAMPLE] * (command == "compare")), "out.prv"), 2)
        assert line.endswith("out.prv: a trace among the reports; give the reports alone")


def test_the_error_of_the_only_report_is_printed_once(tmp_path):
    bad = tmp_path / "bad.sqlite"
    bad.write_bytes(b"")
    done = run("inspect", bad)
    assert done.stdout == "" and "the file is empty" in assert_one_line(done, 1)


def broken(folder):
    """Files that are no sound export, by name, with what the message must say."""
    (folder / "empty.sqlite").write_bytes(b"")
    os.mkfifo(folder / "pipe.sqlite")
    (folder / "folder.sqlite").mkdir()
    (folder / "text.sqlite").write_text("this is no database\n" * 1000)
    whole = SAMPLE.read_bytes()
    (folder / "cut.sqlite").write_bytes(whole[: len(whole) // 2])
    (folder / "header.sqlite").write_bytes(whole[:100])
    with sqlite3.connect(folder / "other.sqlite") as other:
        other.execute("create table t (a)")
    shutil.copy(SAMPLE, folder / "wal.sqlite")
    (folder / "wal.sqlite-wal").write_bytes(b"x")
    shutil.copy(SAMPLE, folder / "journal.sqlite")
    (folder / "journal.sqlite-journal").write_bytes(b"x")
    with sqlite3.connect(folder / "column.sqlite") as column:
        for table in ("StringIds", "CUPTI_ACTIVITY_KIND_RUNTIME"):
            column.execute(f"create table {table} (id integer, value text)")
    for name, sql in (("control.sqlite", "63726561746520074d1b0a"), ("bytes.sqlite", "637265617465ff")):
        shutil.copy(SAMPLE, folder / name)
        with sqlite3.connect(folder / name) as schema:  # sqlite3 tells what is wrong in the words of the file
            schema.execute("pragma writable_schema = on")
            schema.execute(f"update sqlite_master set sql = cast(x'{sql}' as text) where name = 'StringIds'")
    return {
        "empty.sqlite": "empty",
        "pipe.sqlite": "a device or a pipe",
        "control.sqlite": "cannot be read",
        "bytes.sqlite": "cannot be read",
        "folder.sqlite": "folder",
        "text.sqlite": "not an SQLite database",
        "cut.sqlite": "cannot be read",
        "header.sqlite": "cannot be read",
        "other.sqlite": "StringIds",
        "wal.sqlite": "wal.sqlite-wal",
        "journal.sqlite": "journal.sqlite-journal",
        "column.sqlite": "CUPTI_ACTIVITY_KIND_RUNTIME has no column",
        "missing.sqlite": "no such file",
    }


@pytest.mark.slow
def test_damaged_reports_end_in_one_line_and_leave_nothing(tmp_path):
    reports, out = tmp_path / "reports", tmp_path / "out"
    reports.mkdir()
    out.mkdir()
    for name, says in broken(reports).items():
        line = assert_one_line(run(reports / name, out / "out.prv"), 1)
        assert name in line and says in line
        assert files(out) == []


def test_every_cut_of_a_report_ends_well(tmp_path):
    """A database cut anywhere translates (what was lost was not asked for) or ends in one line."""
    whole = SAMPLE.read_bytes()
    for i in range(1, 8):
        report = tmp_path / f"cut{i}.sqlite"
        report.write_bytes(whole[: len(whole) * i // 8])
        done = run(report, tmp_path / "out.prv", "--force")
        if done.returncode:
            assert_one_line(done, 1)


@pytest.mark.slow
def test_existing_trace_needs_force(reference, tmp_path):
    (tmp_path / "out.prv").write_text("mine")
    assert "--force" in assert_one_line(run(SAMPLE, "out.prv", cwd=tmp_path), 1)
    assert (tmp_path / "out.prv").read_text() == "mine"
    assert run(SAMPLE, "out.prv", "--force", cwd=tmp_path).returncode == 0
    assert (tmp_path / "out.prv").read_bytes() == (reference[0] / "out.prv").read_bytes()


@pytest.mark.slow
def test_reports_are_not_touched(tmp_path):
    folder = tmp_path / "reports"
    folder.mkdir()
    shutil.copy(SAMPLE, folder / "a.sqlite")
    before = (folder / "a.sqlite").read_bytes(), (folder / "a.sqlite").stat().st_mtime_ns
    assert run(folder / "a.sqlite", tmp_path / "out.prv").returncode == 0
    assert files(folder) == ["a.sqlite"]
    assert ((folder / "a.sqlite").read_bytes(), (folder / "a.sqlite").stat().st_mtime_ns) == before


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs a folder that not even root can write to")
def test_folder_that_cannot_be_written():
    line = assert_one_line(run(SAMPLE, "/sys/kernel/out.prv"), 1)
    assert "/sys/kernel" in line


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(["out.prv", "out.prv.gz"], push=1))
def test_write_error_leaves_nothing(tmp_path, name):
    import resource

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    done = run(SAMPLE, tmp_path / name, preexec_fn=limit, env={**os.environ, "NUMBA_DISABLE_JIT": "1"})
    assert "File too large" in assert_one_line(done, 1)
    assert files(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), cases([("out.prv", "64k"), ("out.prv.gz", "20k")], push=1))
def test_full_disk(tmp_path, name, size):
    """On a small file system of its own, in a mount namespace."""
    script = (
        f"mount -t tmpfs -o size={size} none {tmp_path} && {sys.executable} -m nsys2prv_ng {SAMPLE} {tmp_path}/{name};"
        f" code=$?; ls -A {tmp_path}; exit $code"
    )
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("mount namespaces are not permitted here")
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=300)
    line = assert_one_line(done, 1)
    assert "no space left" in line
    assert ("or write out.prv.gz" in line) == (name == "out.prv")  # what would not help is not advised
    assert done.stdout == ""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Reports of two ranks on two nodes, the files of their trace, and how long that takes (s)."""
    reports = [SAMPLES / f"ddp-2x2.rank{rank}.sqlite" for rank in (0, 2)]
    folder = tmp_path_factory.mktemp("whole")
    arguments = (*reports, folder / "out.prv", "--force", "-j", "2")
    assert run(*arguments).returncode == 0  # what it compiles is not timed
    began = time.monotonic()
    assert run(*arguments).returncode == 0
    seconds = time.monotonic() - began
    return reports, {path.name: path.read_bytes() for path in folder.iterdir()}, seconds


def wait_until_handled(process):
    """Wait until a process handles signals: before, it is Python that starts."""
    status = Path(f"/proc/{process.pid}/status")
    handled = 0
    while not handled >> (signal.SIGTERM - 1) & 1 and process.poll() is None:
        time.sleep(0.002)
        handled = int(re.search(r"SigCgt:\s*(\w+)", status.read_text())[1], 16)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(["SIGTERM", "SIGKILL", "SIGHUP", "SIGINT"], push=2))
def test_killed_at_any_moment(whole, tmp_path, name):
    """There is no trace, the old one or the new one; unless killed outright, nothing else is left at all."""
    reports, new, seconds = whole
    moments = random.Random(name)
    for i in range(examples(15)):
        folder = tmp_path / str(i)
        folder.mkdir()
        old = dict.fromkeys(new, b"old") if i % 2 else {}
        for each, content in old.items():
            (folder / each).write_bytes(content)
        command = [sys.executable, "-m", "nsys2prv_ng", *map(str, reports), str(folder / "out.prv"), "-j", "2"]
        command += ["--force"] if old else []
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until_handled(process)
        time.sleep(moments.uniform(0, seconds))
        process.send_signal(getattr(signal, name))
        _, error = process.communicate(timeout=300)
        final = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}
        assert final in (old, new) or "out.prv" not in final
        if process.returncode == 0:
            assert final == new
        if name != "SIGKILL":
            assert files(folder) == sorted(final)
            assert "internal error" not in error and "Traceback" not in error


SIGNAL_AT_IMPORT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["MODULE"]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), getattr(signal, os.environ["SIGNAL"]))

sys.meta_path.insert(0, Finder())
"""
"""Sends a signal to this process when it first imports a module."""


MODULES = ["nsys2prv_ng.cli.app", "typer", "numpy", "numba", "dataclasses", "nsys2prv_ng.options.kinds"]
MODULES += ["ctypes", "pyarrow"]
STARTS = [["-m", "nsys2prv_ng"], ["-c", "from nsys2prv_ng.cli.program import main; main()"]]


def list_signals_at_imports():
    """Every push takes all modules, and each signal with each start."""
    for number, module in enumerate(MODULES):
        for n, (name, start) in enumerate(itertools.product(["SIGINT", "SIGTERM"], STARTS)):
            marks = [pytest.mark.all_sets] if n != number % 4 else []
            yield pytest.param(module, name, start, marks=marks, id=f"{module}-{name}-start{STARTS.index(start)}")


@pytest.mark.parametrize(("module", "name", "start"), cases(list(list_signals_at_imports()), quick=8))
def test_a_signal_while_a_module_is_imported(tmp_path, module, name, start):
    """From the first import on, an interrupt is one line."""
    (tmp_path / "sitecustomize.py").write_text(SIGNAL_AT_IMPORT)
    searched = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": searched, "MODULE": module, "SIGNAL": name}
    command = [sys.executable, *start, str(SAMPLE), str(tmp_path / "out.prv")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=Path.cwd())
    how = "interrupted" if name == "SIGINT" else "terminated"
    assert assert_one_line(done, 128 + getattr(signal, name)).endswith(f"error: {how}; no unfinished file is left")
    assert not list(tmp_path.glob("out*"))


@pytest.mark.slow
@pytest.mark.all_sets
def test_only_a_first_run_compiles_and_says_so(tmp_path):
    """A first run, one that has its code, and a quiet one that has all but that of one function."""
    cache = tmp_path / "cache"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    said = []
    for options in ([], [], ["--quiet"]):
        lost = sorted(cache.rglob("sorting.changes_nothing-*")) if options else []
        for path in lost:
            path.unlink()
        arguments = [SAMPLE, tmp_path / "out.prv", "--force", "--sources", "cuda_api", "--no-derived"]
        done = run(*arguments, *options, env=environment)
        assert done.returncode == 0, done.stderr
        said.append([line for line in done.stderr.splitlines() if "compiling" in line])
    assert lost and all(path.exists() for path in lost)  # it was compiled again
    assert [len(lines) for lines in said] == [1, 0, 0]
    assert "kept for later runs" in said[0][0]


@pytest.mark.slow
def test_a_newer_schema_is_a_warning(tmp_path):
    shutil.copy(SAMPLE, tmp_path / "new.sqlite")
    with sqlite3.connect(tmp_path / "new.sqlite") as report:
        report.execute("update META_DATA_EXPORT set value = '9.99.0' where name = 'EXPORT_SCHEMA_VERSION'")
    done = run("new.sqlite", "out.prv", cwd=tmp_path)
    assert done.returncode == 0
    assert "warning" in done.stderr and "9.99.0" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"), [(["--version"], 0), (["missing.sqlite", "out.prv"], 1), (["--no-such-option"], 2)]
)
def test_a_process_ends_as_it_does_within_the_tests(tmp_path, arguments, code):
    """Most tests run the program in their own process; the exit code and the streams are the same."""
    apart, within = run_process(*arguments, cwd=tmp_path), run(*arguments, cwd=tmp_path)
    assert apart.returncode == within.returncode == code
    assert (apart.stdout, apart.stderr) == (within.stdout, within.stderr)


def in_terminal(*arguments, stream):
    """What `stdout` or `stderr` shows on a terminal of 80 columns."""
    import fcntl
    import pty
    import struct
    import termios

    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "nsys2prv_ng", *map(str, arguments)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: child}
    without_size = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(command, **streams, env=without_size) as process:
        os.close(child)
        shown = b""
        while True:
            try:
                block = os.read(parent, 4096)
            except OSError:
                break
            if not block:
                break
            shown += block
        process.wait(timeout=300)
    os.close(parent)
    assert process.returncode == 0
    return shown


@pytest.mark.slow
def test_progress_bars_on_a_terminal(tmp_path):
    """Stderr shows tqdm's bars and no plain lines."""
    assert b"%|" in in_terminal(SAMPLE, tmp_path / "out.prv", stream="stderr")


@pytest.mark.slow
def test_closed_standard_streams(tmp_path):
    """As of a daemon: what is printed goes nowhere, and no file of ours takes their numbers."""
    reports = sorted(SAMPLES.glob("mpi-4.rank*.sqlite"))[:2]
    shell = f'"$@" <&- >&- 2>&-; echo $? >{tmp_path / "code"}'
    command = [sys.executable, "-m", "nsys2prv_ng", "translate", "-j", "2", *map(str, reports), str(tmp_path / "t.prv")]
    subprocess.run(["sh", "-c", shell, "sh", *command], check=True, timeout=300)
    assert (tmp_path / "code").read_text() == "0\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code", "t.pcf", "t.prv", "t.row"]


def test_no_word_at_all_prints_the_help():
    done, help_ = run(), run("--help")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == help_.stdout and "error" not in done.stderr


@pytest.mark.parametrize(
    ("word", "command"), [("sumary", "summary"), ("inspct", "inspect"), ("tranlsate", "translate")]
)
def test_a_mistyped_command_is_no_report(tmp_path, word, command):
    line = assert_one_line(run(word, SAMPLE, tmp_path / "x.prv"), 2)
    assert line.endswith(f"{word}: no such command or report; did you mean {command}?")


@pytest.mark.slow
def test_a_report_named_nearly_like_a_command_is_one(tmp_path):
    (tmp_path / "sumary").write_bytes(SAMPLE.read_bytes())
    assert run("sumary", "x.prv", cwd=tmp_path).returncode == 0
    line = assert_one_line(run("rank0", "x.prv", cwd=tmp_path), 1)
    assert "did you mean" not in line


@pytest.mark.slow
def test_presets_are_a_line_each_for_programs_and_fit_a_terminal():
    listed = run("cfgs").stdout.splitlines()
    shipped = (SAMPLES.parent / "cfgs").glob("*/*")
    assert len(listed) == len([path for path in shipped if path.suffix == ".cfg" or path.parent.name == "filters"])
    shown = in_terminal("cfgs", stream="stdout").decode().splitlines()
    assert max(map(len, shown)) <= 80
    assert " ".join(" ".join(shown).split()) == " ".join(" ".join(listed).split())


def test_a_signal_while_a_library_calls_back(tmp_path):
    """Nothing can be raised through C: what was raised there is not lost."""
    program = """
import ctypes, sys, time
from nsys2prv_ng.cli import app, program

def call_back():
    print("called", flush=True)
    time.sleep(30)

def call_library(words):
    ctypes.CFUNCTYPE(None)(call_back)()
    time.sleep(30)

app.run = call_library
program.main()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "called\n"
    began = time.monotonic()
    process.terminate()
    _, error = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert error == "nsys2prv-ng: error: terminated; no unfinished file is left\n"
    assert time.monotonic() - began < 20


def test_numpy_starts_no_threads() -> None:
    """OpenBLAS starts a thread for each core when it is loaded, unless the variable is set by then."""
    code = """if True:
        import os, sys
        from nsys2prv_ng.cli import program
        class Finder:
            def find_spec(name, path=None, target=None):
                if name == "numpy":
                    print(os.environ.get("OPENBLAS_NUM_THREADS"), flush=True)
        sys.meta_path.insert(0, Finder)
        sys.argv[1:] = ["--version"]
        program.main()
    """
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "1"
