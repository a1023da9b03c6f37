"""What a trace costs Paraver: its records, the memory that the real paramedir takes, and what makes it small enough."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nsys2prv_ng.options.kinds import parse_window
from nsys2prv_ng.paraver.load_cost import DETAILS, LoadCost, find_remedies, format_memory, format_seconds, warn_of_load
from nsys2prv_ng.translation.result import TranslationResult
from nsys2prv_ng.translation.translate import translate
from tests.cfgs.test_generated import CFGS
from tests.conftest import SAMPLES

PARAMEDIR = shutil.which("paramedir")
SETS = {name: sorted(SAMPLES.glob(f"{name}*.sqlite")) for name in ("mpi-4.rank0", "ddp-2x2.rank1")}


@pytest.fixture(scope="module", params=SETS)
def translated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TranslationResult:
    return translate(SETS[request.param], tmp_path_factory.mktemp("load") / "x.prv")


@pytest.mark.slow
def test_records_are_those_of_the_file(translated: TranslationResult) -> None:
    states = events = pairs = communications = 0
    for line in Path(translated.output).read_text().splitlines()[1:]:
        fields = line.split(":")
        states += fields[0] == "1"
        communications += fields[0] == "3"
        if fields[0] == "2":
            events += 1
            pairs += len(fields[6:]) // 2
    assert translated.load == LoadCost(states, events, pairs, communications)
    by_source = sum((source.load for source in translated.sources), LoadCost())
    assert by_source == LoadCost(0, events, pairs, communications)
    written = translated.to_dict()
    assert written["paraver_memory"] == translated.paraver_memory == translated.load.memory > 14_000_000
    assert written["paraver_seconds"] == translated.paraver_seconds > 0 and written["pairs"] == pairs
    assert translated.load.text_bytes == pytest.approx(translated.bytes, rel=0.25)


@pytest.mark.slow
@pytest.mark.skipif(PARAMEDIR is None, reason="paramedir is not installed")
def test_memory_is_that_of_paramedir(translated: TranslationResult) -> None:
    """Its peak as the kernel accounts it; a fork of a large process would start with the peak of that."""
    trace = Path(translated.output)
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    assert PARAMEDIR is not None
    command = ["python3", "-S", "-c", code, PARAMEDIR, str(trace), str(CFGS / "basics/states.cfg"), "out.csv"]
    environment = os.environ | {"HOME": str(trace.parent)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=trace.parent, env=environment, check=True)
    measured = int(done.stdout) * 1024
    assert translated.load.memory == pytest.approx(measured, rel=0.2)


def test_a_limit_of_0_never_warns() -> None:
    load = LoadCost(pairs=10**8)
    assert warn_of_load(load, 0) == [] == warn_of_load(load, load.memory)
    (warning,) = warn_of_load(load, 2**30)
    assert "about 4.5 GB" in warning and "about 20 s" in warning and "1.1 GB" in warning


def test_estimates_have_few_digits() -> None:
    assert [format_seconds(s) for s in (0.2, 1.4, 7, 23, 94, 119, 700)] == [
        "less than 1 s", "about 1 s", "about 7 s", "about 20 s", "about 90 s", "about 100 s", "about 12 min",
    ]  # fmt: skip
    assert [format_memory(size) for size in (1, 14e6, 237e6, 951e6, 4.23e9, 21.7e9)] == [
        "about 1 MB", "about 14 MB", "about 240 MB", "about 1.0 GB", "about 4.2 GB", "about 22 GB",
    ]  # fmt: skip


# ---- what makes a trace small enough: only what helps by a useful amount ---------------------------------------------

GB = 10**9
LINES = LoadCost(communications=4 * 10**6)
METRICS = LoadCost(events=10**6, pairs=2 * 10**7)
KERNELS = LoadCost(events=10**7, pairs=5 * 10**7)
STATES = LoadCost(states=10**6)
LOAD = KERNELS + METRICS + LINES + STATES
LOADS = {"kernels": KERNELS, "launch_lines": LINES, "gpu_metrics": METRICS, "scheduling": LoadCost(pairs=100)}
SECOND = 10**9


def test_nothing_helps_a_trace_below_the_limit() -> None:
    assert find_remedies(LOAD, LOADS, 0, SECOND) == []
    assert find_remedies(LOAD, LOADS, LOAD.memory, SECOND) == []
    assert len(find_remedies(LOAD, LOADS, LOAD.memory - 1, SECOND)) > 1


def test_remedies_are_those_that_save_a_fifth() -> None:
    memory = LOAD.memory
    assert memory == pytest.approx(4.95e9, rel=0.01)
    overview, window, *details = find_remedies(LOAD, LOADS, GB, 10 * SECOND, SECOND)
    assert (overview.option, overview.value) == ("overview_trace", "") and "100 MB" in overview.words
    assert [remedy[1:] for remedy in details] == [("sources", "kernels,gpu_metrics,scheduling")]  # metrics: 18 %
    assert "about 3.3 GB instead of 4.9 GB" in details[0].words
    assert window.option == "time"
    begin, end = parse_window(window.value)
    assert begin is not None and end is not None
    assert begin - SECOND == pytest.approx(11 * SECOND - end, rel=0.01)
    part = (end - begin) / (10 * SECOND)
    assert (LOAD * part).memory == pytest.approx(0.8 * GB, rel=0.02)
    by_paraver = find_remedies(LOAD, LOADS, GB, 10 * SECOND, None)
    assert by_paraver == [overview, by_paraver[1], *details]
    assert by_paraver[1].option == "" and "Cut & Filter" in by_paraver[1].words


def test_what_shows_the_run_is_never_omitted() -> None:
    assert not {"kernels", "nvtx", "nccl", "mpi", "memory_operations", "cuda_graphs"} & set(DETAILS)
    assert not [r for r in find_remedies(KERNELS, {"kernels": KERNELS}, GB, SECOND) if r.option == "sources"]


def test_a_small_trace_needs_no_overview() -> None:
    """An overview may have 100 MB itself. A window that the program alone fills is none."""
    small = LoadCost(events=10**6, pairs=2 * 10**6)
    assert small.text_bytes < 100e6
    assert find_remedies(small, {}, 10**7, SECOND) == []
    assert [remedy.option for remedy in find_remedies(small, {}, 5 * 10**7, SECOND)] == ["time"]
