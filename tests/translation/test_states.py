"""States of whole translations against a simulation of each row by plain loops over what the reports hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from tests import report_truth as truth
from tests.conftest import REPORTS, SAMPLES, Unpacked
from tests.report_sets import sets
from tests.spans import MISSING
from tests.trace_reader import compare_tables
from tests.translated import Translated, Translations, changed, translated_set

RUNNING, SYNCHRONIZATION, GROUP_COMMUNICATION, MEMORY_TRANSFER = 1, 5, 13, 17
STATE_NAMES = {
    RUNNING: "Running",
    SYNCHRONIZATION: "Synchronization",
    GROUP_COMMUNICATION: "Group Communication",
    MEMORY_TRANSFER: "Memory transfer",
}
STATE_OF_CALL = {
    **dict.fromkeys(["cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"], SYNCHRONIZATION),
    **dict.fromkeys(["cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"], SYNCHRONIZATION),
    **dict.fromkeys(["cudaMemcpy", "cudaMemcpy2D", "cudaMemcpyToSymbol", "cuMemcpyHtoD", "cuMemcpy"], MEMORY_TRANSFER),
}
"""Calls in which a thread waits. Asynchronous ones say nothing of their thread, whatever it launches."""

State = tuple[int, int, int, int]
"""Row, begin, end (UTC ns), state."""


def states_of_streams(translated: Translated) -> Iterator[State]:
    """A state for each operation: those of a row never overlap."""
    for operation in translated.operations.itertuples():
        if operation.table in ("MEMCPY", "MEMSET"):
            state = MEMORY_TRANSFER
        else:
            is_nccl = operation.table == "KERNEL" and operation.name.startswith("nccl")
            state = GROUP_COMMUNICATION if is_nccl else RUNNING
        if operation.end > operation.begin:
            yield operation.row, operation.begin, operation.end, state


def states_of_threads(translated: Translated) -> Iterator[State]:
    """Each thread from its first event to its last: the state of its outermost call that has one, else running."""
    events = [translated.calls[["row", "begin", "end"]], translated.nvtx[["row", "begin", "end"]]]
    for row, of_row in pd.concat([part for part in events if len(part)]).groupby("row"):
        calls = translated.calls[(translated.calls["row"] == row) & translated.calls["name"].isin(STATE_OF_CALL)]
        at = of_row["begin"].min()
        in_order = sorted(
            zip(calls["begin"], -calls["end"], (STATE_OF_CALL[name] for name in calls["name"]), strict=True)
        )
        for begin, minus_end, state in in_order:
            if -minus_end <= at or begin == -minus_end:
                continue  # within the one before, or without length
            if begin > at:
                yield row, at, begin, RUNNING
            yield row, max(at, begin), -minus_end, state
            at = -minus_end
        if of_row["end"].max() > at:
            yield row, at, of_row["end"].max(), RUNNING


def _sets() -> dict[str, list[Path]]:
    sets = {
        "samples/ddp-2x2": sorted(SAMPLES.glob("ddp-2x2.*")),
        "samples/mpi-4": sorted(SAMPLES.glob("mpi-4.*")),
        "samples/single-graph": [SAMPLES / "single-graph.sqlite"],
    }
    for folder, names in {
        "gpu": ("oneproc-4gpu", "um-1", "single-node", "autograd-1"),
        "public": ("h100_2gpu_1s", "mfu_2gpu_before", "pipit_cloverleaf"),
        "cpu": ("2024.2.3-nvtx_py", "2024.2.3-nccl_mimic_rank0"),
        "bench": ("torchrun-one-report",),
    }.items():
        for name in names:
            sets |= {f"{folder}/{name}": sorted((REPORTS / folder).glob(f"{name}.sqlite*"))}
    return {name: reports for name, reports in sets.items() if reports}


_REAL = [pytest.param(reports, id=name) for name, reports in _sets().items()]


@pytest.fixture(scope="module", params=sets(_REAL) + MISSING)
def translated(request: pytest.FixtureRequest, translations: Translations, unpacked: Unpacked) -> Translated:
    return translations([unpacked(path) for path in request.param])


def states(translated: Translated) -> pd.DataFrame:
    found = translated.trace.states
    return found.assign(begin=found["begin"] + translated.start, end=found["end"] + translated.start)


def table(expected: Iterator[State]) -> pd.DataFrame:
    return pd.DataFrame(list(expected), columns=["row", "begin", "end", "state"]).astype("int64")


def test_states_of_every_row(translated: Translated) -> None:
    expected = pd.concat([table(states_of_streams(translated)), table(states_of_threads(translated))])
    assert len(expected) > 0
    assert compare_tables(states(translated), expected, ["row", "begin", "end", "state"]) == ""


def test_states_never_overlap_and_have_a_length(translated: Translated) -> None:
    busy_until: dict[int, int] = {}
    found = translated.trace.states.sort_values(["row", "begin"])
    for row, begin, end in zip(found["row"], found["begin"], found["end"], strict=True):
        assert busy_until.get(row, begin) <= begin < end
        busy_until[row] = end


def test_states_are_in_the_order_of_their_begin(translated: Translated) -> None:
    """On each row the file order decides between states, and Paraver's cutter stops at the first later one."""
    assert translated.trace.states["begin"].is_monotonic_increasing


def test_states_have_names(translated: Translated) -> None:
    names: dict[int, str] = {}
    lines = iter(translated.trace.path.with_suffix(".pcf").read_text().splitlines())
    for line in lines:
        if line.strip() == "STATES":
            break
    for line in lines:
        if not line:
            break
        number, name = line.split(maxsplit=1)
        names[int(number)] = name
    used = set(translated.trace.states["state"])
    assert used <= set(STATE_NAMES)
    assert {state: names[state] for state in used} == {state: STATE_NAMES[state] for state in used}


# ---- what no real report has -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_of_nested_calls_the_outermost_has_the_state(samples: Path, tmp_path: Path) -> None:
    """A copy within a call that waits, one right after it, an asynchronous one, and calls of no or of equal length."""
    begin = 5_000_000_000  # the capture ends 9 ms later
    tid = "(SELECT MIN(globalTid) FROM MPI_RANKS)"

    def call(name: str, start: int, end: int) -> list[str]:
        name_id = f"(SELECT id FROM StringIds WHERE value = '{name}_v1')"
        return [
            f"INSERT OR IGNORE INTO StringIds (id, value) SELECT MAX(id) + 1, '{name}_v1' FROM StringIds"
            f" WHERE NOT EXISTS (SELECT 1 FROM StringIds WHERE value = '{name}_v1')",
            f"""INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME
            (start, "end", eventClass, globalTid, correlationId, nameId, returnValue)
            VALUES ({begin + start}, {begin + end}, 0, {tid}, NULL, {name_id}, 0)""",
        ]

    statements = [
        "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME",
        "DELETE FROM NVTX_EVENTS WHERE eventType = 59",
        *call("cudaLaunchKernel", 0, 100),
        *call("cudaStreamSynchronize", 10, 50),
        *call("cudaMemcpy", 20, 40),
        *call("cudaMemcpy", 50, 60),
        *call("cudaMemcpyAsync", 60, 70),
        *call("cuStreamSynchronize", 80, 80),
        *call("cudaMemcpy", 90, 100),
        *call("cudaDeviceSynchronize", 90, 100),
        *call("cudaMemcpy", 200, 210),
        *call("cudaMalloc", 300, 310),
    ]
    report = changed(samples / "mpi-4.rank0.sqlite", tmp_path / "report.sqlite", statements)
    translated = translated_set([report], tmp_path / "trace", sources="cuda_api,nvtx")
    found = states(translated)
    zero = begin + translated.objects.reports[0].utc
    assert translated.start == zero
    shown = list(zip(found["begin"] - zero, found["end"] - zero, found["state"], strict=True))
    assert shown == [
        (0, 10, RUNNING),
        (10, 50, SYNCHRONIZATION),
        (50, 60, MEMORY_TRANSFER),
        (60, 90, RUNNING),
        (90, 100, MEMORY_TRANSFER),
        (100, 200, RUNNING),
        (200, 210, MEMORY_TRANSFER),
        (210, 310, RUNNING),
    ]


def test_a_stream_is_idle_between_its_operations(samples: Path, tmp_path: Path) -> None:
    """Gaps are no states; only host threads run where nothing is said."""
    translated = translated_set([samples / "mpi-4.rank0.sqlite"], tmp_path, sources="kernels")
    kernels = translated.operations
    assert Counter(translated.trace.states["state"]) == {RUNNING: len(kernels)}
    shown = (translated.trace.states["end"] - translated.trace.states["begin"]).sum()
    assert shown == (kernels["end"] - kernels["begin"]).sum() < translated.trace.duration


def test_the_simulation_of_calls_knows_every_call_that_waits(translated: Translated) -> None:
    """A name with Synchronize or a copy without Async that the table above lacks would make the test blind to it."""
    for name in set(truth.list_calls(translated.objects)["name"]):
        waits = "Synchronize" in name or ("Memcpy" in name and "Async" not in name)
        assert waits == (name in STATE_OF_CALL), name
