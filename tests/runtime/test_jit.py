"""What becomes of compiled code: kept, shared, damaged, or with no place to be kept."""

from __future__ import annotations

import errno
import importlib.util
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numba
import numpy as np
import pytest

import nsys2prv_ng
from nsys2prv_ng.runtime import files, jit, machine_code
from tests.tiers import cases

MODULE = """
from nsys2prv_ng.runtime.jit import compiled

@compiled
def total(values):
    found = values[0]
    for value in values[1:]:
        found += value
    return found
"""
INTEGERS = np.array([2**53, 1, 5])  # another sum in floating point
REALS = np.array([0.5, 0.25])


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module with a function to compile, and an empty folder `cache` beside it to keep it in."""
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    return path


def lines_of(path, *arrays):
    """Import the module anew and call its function, check the sums, and return what was told about compiling."""
    spec = importlib.util.spec_from_file_location("module", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    lines = []
    with jit.announce_compilation(lines.append):
        for array in arrays:
            assert found.total(array) == sum(array.tolist())
    return lines


def cached(path):
    return sorted(path.parent.glob("cache/**/*.nbc"))


@pytest.fixture(autouse=True)
def forgets():
    forget()


def forget():
    """Let the next call find its folders anew, as another process does."""
    for known in (machine_code._find_folders, files._is_safe, files.list_own):
        known.cache_clear()


def test_compiled_once(module):
    assert lines_of(module, INTEGERS, REALS) == [
        "compiling numba kernels that no run needed before (kept for later runs; all take about 30 s of one core)"
    ]
    assert len(cached(module)) == 2
    assert lines_of(module, INTEGERS, REALS) == []


@pytest.mark.slow
@pytest.mark.parametrize("damage", cases(["empty", "cut", "zeros", "text", "bits", "none"], push=4))
def test_damaged_files_are_as_if_not_there(module, damage):
    lines_of(module, INTEGERS)
    (path,) = cached(module)
    sound = path.read_bytes()
    half = len(sound) // 2
    if damage == "none":
        path.unlink()
    else:
        damaged = {
            "empty": b"",
            "cut": sound[:half],
            "zeros": sound[:half] + bytes(len(sound) - half),
            "text": b"this is no code\n" * 100,
            "bits": sound[:half] + bytes([sound[half] ^ 1]) + sound[half + 1 :],
        }
        path.write_bytes(damaged[damage])
    assert len(lines_of(module, INTEGERS)) == 1
    assert lines_of(module, INTEGERS) == []


def test_code_of_another_signature_is_not_run(module):
    """As after somebody has renamed files."""
    lines_of(module, INTEGERS, REALS)
    one, other = cached(module)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    assert len(lines_of(module, INTEGERS, REALS)) == 1
    assert lines_of(module, INTEGERS, REALS) == []


def test_another_version_compiles_again(module, monkeypatch):
    lines_of(module, INTEGERS)
    monkeypatch.setattr(machine_code, "__version__", "another")
    assert len(lines_of(module, INTEGERS)) == 1
    assert lines_of(module, INTEGERS) == []


CONSTANT = "LIMIT = 3\nSHIFT = 1\n"
CALLEE = """
import settings
from nsys2prv_ng.runtime.jit import compiled, inlined
from settings import LIMIT

@inlined
def shift(value):
    return value << settings.SHIFT

@compiled
def limit(value, bonus=0):
    return min(shift(value), LIMIT) + bonus
"""
CALLER = """
from callee import limit
from nsys2prv_ng.runtime.jit import compiled

@compiled
def total(values):
    count = 0
    for value in values:
        count += limit(value)
    return count
"""


@pytest.mark.all_sets
@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        [
            ("settings.py", "LIMIT = 3", "LIMIT = 5", 11),
            ("callee.py", "bonus=0", "bonus=1", 14),
            ("settings.py", "SHIFT = 1", "SHIFT = 0", 9),
        ],
        [("settings.py", "SHIFT = 1", "SHIFT = 0", 6)],
        [("callee.py", "bonus=0", "bonus=1", 11)],
        [("callee.py", "min(", "max(", 13)],
        [("settings.py", "SHIFT = 1", "SHIFT = 1  # the same", 8)],
    ],
    ids=["one after the other", "constant of an inlined callee", "default", "callee", "comment"],
)
def test_a_changed_constant_or_callee_compiles_again(tmp_path, changes):
    """Numba itself would go on with the machine code of the old constant, which is in another file."""
    for name, text in (("settings.py", CONSTANT), ("callee.py", CALLEE), ("caller.py", CALLER)):
        (tmp_path / name).write_text(text)
    code = "import caller, numpy as np; print(caller.total(np.array([1, 2, 3])))"
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert python(code, tmp_path, **environment).communicate(timeout=300)[0] == "8\n"
    for file, old, new, total in changes:
        path = tmp_path / file
        path.write_text(path.read_text().replace(old, new))
        assert python(code, tmp_path, **environment).communicate(timeout=300)[0] == f"{total}\n"


@pytest.mark.slow
def test_a_caller_is_compiled_with_a_callee_that_was_kept(tmp_path):
    for name, text in (("settings.py", CONSTANT), ("callee.py", CALLEE), ("caller.py", CALLER)):
        (tmp_path / name).write_text(text)
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    code = (
        "import callee, caller, numpy as np; callee.limit(5)\n"
        "print(caller.total(np.array([1, 2, 3])), sum(callee.limit.stats.cache_hits.values()))"
    )
    assert python(code, tmp_path, **environment).communicate(timeout=300)[0] == "8 0\n"
    for path in cached(tmp_path / "module.py"):
        if path.name.startswith("caller"):
            path.unlink()
    assert python(code, tmp_path, **environment).communicate(timeout=300)[0] == "8 1\n"


@pytest.mark.slow
def test_importing_leaves_the_environment_alone(tmp_path):
    code = "import os; before = dict(os.environ); import nsys2prv_ng.runtime.jit; print(dict(os.environ) == before)"
    assert python(code, tmp_path, XDG_CACHE_HOME="relative", HOME="").communicate(timeout=60)[0] == "True\n"


def test_no_folder_to_keep_it(module, monkeypatch):
    """Not even root can make folders there."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    (module.parent / "__pycache__").write_text("")
    for _ in range(2):
        (line,) = lines_of(module, INTEGERS)
        assert "in every run" in line and "NUMBA_CACHE_DIR" in line


def test_no_space_to_keep_it(module, monkeypatch):
    """A damaged file on a full disk: the function is compiled in every run."""
    lines_of(module, INTEGERS)
    (path,) = cached(module)
    path.write_bytes(path.read_bytes()[:200])

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(machine_code, "write_own", full)
    for _ in range(2):
        assert len(lines_of(module, INTEGERS)) == 1


@pytest.fixture
def installed(module, tmp_path, monkeypatch):
    """A module that an administrator has run once; others cannot write beside it, and keep code in `cache`."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    lines_of(module, INTEGERS)
    assert len(list(beside(module))) == 1
    forget()
    access = os.access
    # Root cannot be refused by permissions.
    monkeypatch.setattr(os, "access", lambda path, mode: "__pycache__" not in str(path) and access(path, mode))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return module


def beside(path):
    return {file: file.read_bytes() for file in path.parent.glob("__pycache__/*.nb?")}


@pytest.mark.parametrize("has_home", [True, False])
def test_code_beside_the_module_is_used_by_those_who_cannot_write_there(installed, monkeypatch, has_home):
    if not has_home:
        monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    os.utime(installed, (1, 1))  # as installing and copying do
    filled = beside(installed)
    assert lines_of(installed, INTEGERS) == []
    (line,) = lines_of(installed, INTEGERS, REALS)
    assert ("kept for later runs" if has_home else "in every run") in line
    assert len(lines_of(installed, INTEGERS, REALS)) == (not has_home)
    assert len(cached(installed)) == has_home and beside(installed) == filled


@pytest.mark.parametrize("fault", ["damaged", "stale", "not to be read"])
def test_code_beside_the_module_that_cannot_be_used_is_no_error(installed, monkeypatch, fault):
    (path,) = beside(installed)
    if fault == "stale":
        installed.write_text(MODULE + "\n")
    if fault == "damaged":
        path.write_bytes(path.read_bytes()[:100])
    if fault == "not to be read":
        real = machine_code.read_own

        def read(name, owners):
            if name == str(path):
                raise PermissionError(errno.EACCES, "Permission denied")
            return real(name, owners)

        monkeypatch.setattr(machine_code, "read_own", read)
    filled = beside(installed)
    assert len(lines_of(installed, INTEGERS)) == 1
    assert lines_of(installed, INTEGERS) == []
    assert beside(installed) == filled


def test_a_chosen_folder_is_used_alone(installed, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(installed.parent / "cache"))
    assert len(lines_of(installed, INTEGERS)) == 1


def python(code, cwd, **environment):
    kept = {name: value for name, value in os.environ.items() if name not in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR")}
    command = [sys.executable, "-B", "-c", code]
    return subprocess.Popen(command, cwd=cwd, env=kept | environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_processes_that_start_together(module):
    code = "import module, numpy as np; print(module.total(np.arange(1000)))"
    processes = [python(code, module.parent, NUMBA_CACHE_DIR=str(module.parent / "cache")) for _ in range(3)]
    assert [process.communicate(timeout=300)[0] for process in processes] == ["499500\n"] * 3
    lines_of(module, np.arange(1000))  # where two wrote at once, what is kept may be of neither
    assert lines_of(module, np.arange(1000)) == []


def test_everything_is_compiled_in_this_way():
    package = Path(nsys2prv_ng.__file__).parent
    direct = [path.name for path in package.rglob("*.py") if "njit" in path.read_text()]
    assert direct == ["jit.py"]


def test_uncounted_functions_compute_the_same_and_keep_no_array(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    @jit.inlined
    def pick(values, at):
        return values[at] if at < values.size else -1

    @jit.compiled
    def total(values, order):
        found = 0
        for at in order:
            found += pick(values, at)
        return found

    before = sys.getrefcount(INTEGERS)
    assert total(INTEGERS, np.array([0, 2, 7])) == 2**53 + 5 - 1
    assert sys.getrefcount(INTEGERS) == before
    assert "NRT_" not in total.inspect_asm(total.signatures[0])


@pytest.mark.slow
@pytest.mark.all_sets
def test_one_of_several_processes_compiles(module):
    """The others wait, and take its code."""
    code = (
        "import numpy as np\nfrom nsys2prv_ng.runtime import jit\nimport module\n"
        "with jit.announce_compilation(print):\n    module.total(np.arange(4))"
    )
    environment = {"NUMBA_CACHE_DIR": str(module.parent / "cache")}
    processes = [python(code, module.parent, **environment) for _ in range(4)]
    lines = [process.communicate(timeout=300)[0].splitlines() for process in processes]
    assert sorted(map(len, lines)) == [0, 0, 0, 1]


@pytest.mark.parametrize("fault", ["folder", "locks"])
def test_without_turns_every_process_compiles(module, monkeypatch, fault):
    def fail(*arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(
        machine_code.fcntl if fault == "locks" else machine_code._Turn,
        {"locks": "lockf", "folder": "_open"}[fault],
        fail,
    )
    assert len(lines_of(module, INTEGERS)) == 1
    assert lines_of(module, INTEGERS) == []


def test_a_process_waits_only_once_for_one_that_is_stuck(module, monkeypatch):
    """Another process may have been stopped while it compiled."""
    monkeypatch.setattr(machine_code._Turn, "longest_wait", 0.2)
    slept, sleep = [], time.sleep

    def busy(*arguments):
        raise BlockingIOError

    monkeypatch.setattr(machine_code.fcntl, "lockf", busy)
    monkeypatch.setattr(machine_code.time, "sleep", lambda seconds: slept.append(seconds) or sleep(seconds))
    assert len(lines_of(module, INTEGERS)) == 1
    assert 0 < len(slept) <= 20
    slept.clear()
    module.write_text(MODULE.replace("total(", "other(") + MODULE)
    assert len(lines_of(module, INTEGERS, REALS)) == 1
    assert slept == []


def poison(folder):
    """Let each file of machine code leave a mark beside it when it is unpickled, as who can write it may."""
    for path in folder.rglob("*.nbc"):
        code = pickle.dumps(Mark(path.with_suffix(".ran")))
        head = path.read_bytes()[: machine_code._HEAD - 4]
        path.write_bytes(machine_code._make_head(head, code) + code)


class Mark:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def list_marks(folder):
    return list(folder.rglob("*.ran"))


def test_code_of_this_user_is_run(module, tmp_path):
    """Otherwise the next test could not fail."""
    lines_of(module, INTEGERS)
    poison(tmp_path / "cache")
    lines_of(module, INTEGERS)
    assert len(list_marks(tmp_path)) == 1


def give(path):
    os.chown(path, 65534, 65534)


CHANGES = {
    "another user": give,
    "writable by the group": lambda path: path.chmod(path.stat().st_mode | 0o020),
    "writable by others": lambda path: path.chmod(path.stat().st_mode | 0o002),
    "sticky": lambda path: path.chmod(0o1777),
}
WHAT = {
    "file": lambda folder: next(folder.rglob("*.nbc")),
    "folder": lambda folder: next(folder.rglob("*.nbc")).parent,
    "chosen": lambda folder: folder,
    "above": lambda folder: folder.parent,
}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("where", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"])
def test_code_that_others_may_have_written_is_not_run(tmp_path, monkeypatch, where, what, how):
    module = tmp_path / "module" / "module.py"
    module.parent.mkdir()
    module.write_text(MODULE)
    (module.parent / "__pycache__").write_text("")
    folder = tmp_path / "mine" / "cache"
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder) if where == "NUMBA_CACHE_DIR" else "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", os.devnull)
    if where != "NUMBA_CACHE_DIR":
        monkeypatch.setenv(where, str(folder))
    lines_of(module, INTEGERS)
    poison(folder)
    CHANGES[how](WHAT[what](folder))
    forget()
    lines_of(module, INTEGERS)
    is_own = how == "sticky" and what in ("above", "chosen")  # in these, each may rename only what is his
    assert len(list_marks(folder)) == is_own


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("given", ["all", "code"])
def test_code_beside_a_module_counts_if_it_is_of_the_owner_of_the_module(tmp_path, monkeypatch, given):
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    module = tmp_path / "module" / "module.py"
    module.parent.mkdir()
    module.write_text(MODULE)
    lines_of(module, INTEGERS)
    poison(module.parent)
    for path in [*module.parent.rglob("*"), module.parent]:
        if given == "all" or path.suffix == ".nbc":
            give(path)
    forget()
    lines_of(module, INTEGERS)
    assert len(list_marks(module.parent)) == (given == "all")


@pytest.mark.parametrize("odd", ["pipe", "folder", "link", "link to itself", "device"])
def test_what_is_no_file_is_as_if_not_there(module, tmp_path, odd):
    lines_of(module, INTEGERS)
    (path,) = cached(module)
    poison(tmp_path / "cache")
    kept = path.rename(tmp_path / "kept.nbc")
    if odd == "pipe":
        os.mkfifo(path)
    elif odd == "folder":
        path.mkdir()
    else:
        path.symlink_to({"link": kept, "link to itself": path, "device": "/dev/zero"}[odd])
    assert len(lines_of(module, INTEGERS)) == 1
    assert not list_marks(tmp_path)
    assert len(lines_of(module, INTEGERS)) == (odd == "folder")  # nothing can take its place


@pytest.mark.parametrize("odd", ["pipe", "folder", "link"])
def test_a_lock_that_is_no_file(module, tmp_path, odd):
    lines_of(module, REALS)
    (lock,) = tmp_path.rglob("turns.lock")
    lock.unlink()
    make = {"pipe": os.mkfifo, "folder": Path.mkdir, "link": lambda path: path.symlink_to(tmp_path / "elsewhere")}
    make[odd](lock)
    for key in [key for key in machine_code._Turn._files if key[1] == str(lock.parent)]:
        os.close(machine_code._Turn._files.pop(key))
    assert len(lines_of(module, INTEGERS)) == 1
    assert lines_of(module, INTEGERS) == []
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mask", [0o002, 0o077])
def test_any_umask_leaves_code_that_can_be_used(module, tmp_path, monkeypatch, mask):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "new" / "cache"))
    before = os.umask(mask)
    try:
        assert len(lines_of(module, INTEGERS)) == 1
    finally:
        os.umask(before)
    forget()
    assert lines_of(module, INTEGERS) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_nothing_is_made_in_the_folder_of_another_user(module, tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    (module.parent / "__pycache__").write_text("")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "numba").symlink_to(tmp_path / "elsewhere")
    give(theirs)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(theirs))
    assert "in every run" in lines_of(module, INTEGERS)[0]
    (theirs / "numba").unlink()
    forget()
    assert "in every run" in lines_of(module, INTEGERS)[0]
    assert not list(theirs.iterdir()) and not list((tmp_path / "elsewhere").iterdir())


CHECKED = """
from nsys2prv_ng.runtime.jit import announce_compilation, compiled

@compiled
def halve(value):
    assert value % 2 == 0
    return value // 2

with announce_compilation(lambda line: print("compiling")):
    try:
        print(halve(3))
    except AssertionError:
        print("odd")
"""


@pytest.mark.slow
def test_without_assertions_code_is_kept_apart(tmp_path):
    (tmp_path / "checked.py").write_text(CHECKED)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    said = []
    for flags in ([], ["-O"], ["-OO"], [], ["-O"], ["-OO"]):
        command = [sys.executable, *flags, "-c", "import checked"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        said.append(done.stdout.split())
    assert said == [["compiling", "odd"], *[["compiling", "1"]] * 2, ["odd"], ["1"], ["1"]]
