"""What a translation may use of the machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from nsys2prv_ng.runtime.limits import Resources, count_usable_cores, get_default_memory, list_control_groups


@pytest.fixture(autouse=True)
def _without_slurm(monkeypatch):
    for name in ("SLURM_STEP_ID", "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"):
        monkeypatch.delenv(name, raising=False)


def test_cores_are_those_of_the_step():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert count_usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert 1 <= count_usable_cores() <= len(allowed)


def test_memory_is_at_most_a_quarter_of_the_machine():
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert 0 < get_default_memory() <= total // 4


@pytest.mark.parametrize(
    ("jobs", "memory", "sizes", "processes"),
    [
        (8, 10**12, [100, 5, 7], 3),
        (2, 10**12, [100] * 9, 2),
        (8, 100, [100] * 9, 1),
        (8, 10**12, [0], 1),
        (8, 10**12, [], 1),
        (1, 10**12, [100] * 9, 1),
    ],
)
def test_readers(jobs, memory, sizes, processes):
    assert Resources(jobs, memory).count_readers(sizes) == processes


@pytest.mark.parametrize(
    ("jobs", "memory", "largest", "workers"), [(8, 10**12, 100, 8), (8, 700, 100, 3), (8, 10, 100, 1), (8, 10**9, 0, 8)]
)
def test_workers_do_not_depend_on_the_number_of_reports(jobs, memory, largest, workers):
    assert Resources(jobs, memory).count_workers(largest) == workers


@pytest.mark.parametrize(("largest", "exceeds"), [(0, False), (700 << 20, False), (701 << 20, True)])
def test_memory_that_reading_takes_at_least(largest, exceeds):
    assert Resources(1, 300 << 20).must_exceed(largest) == exceeds


def test_fewer_processes_where_reading_would_not_fit():
    few, many = (Resources(64, 2**31).count_readers([size] * 64) for size in (2**28, 2**20))
    assert 1 <= few < 8 and many == 64


@pytest.mark.parametrize(
    ("text", "folders"),
    [
        ("0::/slurm/job_7/step_0\n", ["slurm/job_7/step_0", "slurm/job_7", "slurm", "."]),
        ("12:cpu:/a\n4:memory:/slurm/job_7\n0::/\n", ["memory/slurm/job_7", "memory/slurm", "memory", "."]),
    ],
)
def test_control_groups(tmp_path, text, folders):
    """Version 2 and 1 of Linux's control groups: the group and all around it, and no others."""
    (tmp_path / "groups").write_text(text)
    found = list_control_groups("memory", tmp_path / "groups", tmp_path / "mounted")
    assert found == [tmp_path / "mounted" / name for name in folders]


def test_no_control_groups(tmp_path):
    assert list_control_groups("cpu", tmp_path / "nothing", tmp_path) == []


def write_groups(folder, lines, files):
    (folder / "groups").write_text(lines)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "groups", folder


V1 = "5:cpu,cpuacct:/job/step\n3:memory:/job\n0::/\n"
V2 = "0::/job/step\n"


@pytest.mark.parametrize(
    ("lines", "files", "cores"),
    [
        (V2, {}, 64),
        (V2, {"job/step/cpu.max": "max 100000\n", "job/cpu.max": "400000 100000\n"}, 4),
        (V2, {"job/step/cpu.max": "250000 100000\n", "job/cpu.max": "400000 100000\n"}, 3),
        (V2, {"cpu.max": "50000 100000\n"}, 1),
        (V2, {"job/cpu.max": "9900000 100000\n"}, 64),
        (V2, {"job/cpu.max": "0 100000\n", "cpu.max": "200000\n"}, 64),
        (V1, {"cpu/job/cpu.cfs_quota_us": "200000\n", "cpu/job/cpu.cfs_period_us": "100000\n"}, 2),
        (V1, {"cpu/job/cpu.cfs_quota_us": "-1\n", "cpu/job/cpu.cfs_period_us": "100000\n"}, 64),
        (V1, {"memory/job/cpu.cfs_quota_us": "200000\n", "memory/job/cpu.cfs_period_us": "100000\n"}, 64),
    ],
)
def test_cores_are_those_of_the_control_group(tmp_path, monkeypatch, lines, files, cores):
    """A part of a core counts as one, since a process that waits for its share loses nothing."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    assert count_usable_cores(*write_groups(tmp_path, lines, files)) == cores


@pytest.mark.parametrize(("asked", "cores"), [("3", 3), ("9", 8), ("0", 1), ("", 8), ("4(x2)", 8), ("-1", 8)])
@pytest.mark.parametrize("is_task", [True, False])
def test_cores_are_those_that_slurm_gave(tmp_path, monkeypatch, asked, cores, is_task):
    """A batch script with four tasks of 16 cores has 64 on its node, not those of a task."""
    monkeypatch.setenv("SLURM_CPUS_PER_TASK" if is_task else "SLURM_CPUS_ON_NODE", asked)
    monkeypatch.setenv("SLURM_CPUS_ON_NODE" if is_task else "SLURM_CPUS_PER_TASK", "1")
    if is_task:
        monkeypatch.setenv("SLURM_STEP_ID", "0")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    assert count_usable_cores(tmp_path / "no groups", tmp_path) == cores


@pytest.mark.parametrize(
    ("lines", "files"), [(V2, {"job/memory.max": "8000\n"}), (V1, {"memory/job/memory.limit_in_bytes": "8000\n"})]
)
def test_memory_is_a_quarter_of_that_of_the_control_group(tmp_path, lines, files):
    assert get_default_memory(*write_groups(tmp_path, lines, files)) == 2000


FAULTS = """
import resource, sys
from nsys2prv_ng.runtime.limits import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
for _ in range(10):
    # By itself glibc comes to keep twice the largest block, and maps each block above 32 MB anew.
    blocks = [b"x" * (40 << 20) for _ in range(4)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_freed_memory_is_used_again():
    """The kernel counts the pages that it gives: with the setting, those of the first blocks; without it, all."""
    faults = {}
    for how in ("keep", "return"):
        done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
        faults[how] = int(done.stdout)
    assert faults["return"] - faults["keep"] > 8 * (4 * 40 << 20) / os.sysconf("SC_PAGE_SIZE")


GIVEN_BACK = """
import re
from pathlib import Path
from nsys2prv_ng.runtime.limits import give_back_freed_memory, keep_freed_memory
def measure():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
keep_freed_memory()
blocks = [b"x" * (24 << 20) for _ in range(4)]
del blocks[:-1]  # the last block is above the freed ones
kept = measure()
give_back_freed_memory()
print(kept - measure(), len(blocks[0]), set(blocks[0]))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has malloc_trim")
def test_freed_memory_is_given_back():
    """The system gets freed blocks in the middle of the heap as well; a block in use stays."""
    done = subprocess.run([sys.executable, "-c", GIVEN_BACK], capture_output=True, text=True, check=True)
    freed, rest = done.stdout.split(maxsplit=1)
    assert int(freed) > 0.9 * (3 * 24 << 10)
    assert rest.strip() == f"{24 << 20} {{120}}"
