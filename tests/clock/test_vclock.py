"""Times that nsys has aligned itself: compared with the fit, which wins; kept where there is nothing to fit."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.clock.alignment import AUTO, PLAIN_UTC, ReportClock, align_clocks
from nsys2prv_ng.clock.alignment_table import Alignment
from nsys2prv_ng.report.export_settings import NORMALISED, SYSTEM, VCLOCK
from tests.clock.simulated import Program, Run, run
from tests.sources.nccl.nccl_reports import COMMUNICATOR, OPERATION, RANKS, SIZE, Call, Kernel, write_nccl_report
from tests.sources.small_reports import UTC, translate_reports

US = 1000


def simulate(offset_us: float, nodes: int = 3) -> Run:
    """A minute of collectives of all nodes, whose clocks are off by as much, but do not drift."""
    return run(Program(nodes, [range(nodes)], 300, 60.0, offset=offset_us * US, drift=0.0, seed=3))


def align(simulated: Run, clocks: list[str], way: str | Path = AUTO) -> Alignment:
    reports = [ReportClock(node, 0, clock=clock) for node, clock in enumerate(clocks)]
    return align_clocks(way, reports, simulated.names, simulated.matches)[0]


def find_difference(alignment: Alignment, clock: str) -> tuple[float, str] | None:
    """Return the difference (us) and the node that the text of an alignment has for a clock."""
    found = re.findall(rf"^{clock} and the fit differ by up to ([0-9,.]+) us \(on (\w+)\)$", alignment.text(), re.M)
    assert len(found) <= 1
    return (float(found[0][0].replace(",", "")), found[0][1]) if found else None


@pytest.mark.parametrize("way", [AUTO, PLAIN_UTC])
@pytest.mark.parametrize("clock", [VCLOCK, NORMALISED])
def test_the_planted_error_is_printed(clock: str, way: str) -> None:
    simulated = simulate(400)
    alignment = align(simulated, [clock] * 3, way)
    reference = simulated.names.index(alignment.nodes[0].reference)
    truth = np.abs(simulated.offset - simulated.offset[reference]) / US
    difference, node = find_difference(alignment, clock) or (0.0, "")
    assert truth.max() > 100 and abs(difference - truth.max()) < 3
    assert node == simulated.names[int(truth.argmax())]
    corrected = np.array([each.correction.offset for each in alignment.nodes]) / US
    assert np.abs(np.abs(corrected) - (truth if way == AUTO else 0)).max() < 3, "the fit wins"
    shown = [each["suggested_us"] for each in alignment.to_dict()["nodes"]]  # type: ignore[attr-defined]
    assert [value is None for value in shown] == [number == reference for number in range(3)]


def test_a_clock_that_is_kept_is_named() -> None:
    """An error below that of the fit: nothing is corrected, and the table names the clock."""
    alignment = align(simulate(0.01), [VCLOCK] * 3)
    assert {node.correction.offset for node in alignment.nodes} == {0}
    difference, _ = find_difference(alignment, VCLOCK) or (0.0, "")
    assert 0 < difference < 3
    table = [line.split() for line in alignment.text().splitlines() if line.startswith("node")]
    assert [words[-1] for words in table] == ["reference", "vClock", "vClock"]


def test_what_is_not_compared() -> None:
    """The system's clock, and nodes whose reference has another one."""
    simulated = simulate(400)
    assert find_difference(align(simulated, [SYSTEM] * 3), ".*") is None
    alignment = align(simulated, [SYSTEM, VCLOCK, SYSTEM])
    reference = alignment.nodes[0].reference
    alignment = align(simulated, [SYSTEM if name == reference else VCLOCK for name in simulated.names])
    assert find_difference(alignment, ".*") is None
    assert any(node.correction.offset for node in alignment.nodes)


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_reports_of_two_nodes(tmp_path: Path, shared: bool) -> None:
    """Normalised exports with 30 us between the clocks; the trace has the collectives at one time if they share any."""
    error = 30 * US
    paths = []
    for rank in range(2):
        start = UTC + rank * error
        number = 5 if shared else 5 + rank
        calls, kernels = (
            [Call(start + 1, start + 2, "ncclCommInitRank", {COMMUNICATOR: number, RANKS: 2, "Rank": rank})],
            [],
        )
        for i in range(200):
            at = start + 10**6 + i * 50 * 10**6
            calls.append(Call(at, at + 500, "ncclAllReduce", {COMMUNICATOR: number, SIZE: 64, OPERATION: "Sum"}))
            kernels.append(Kernel(at + 600, at + 20 * US + (i * 7919) % 700, "ncclDevKernel_AllReduce_Sum", at + 100))
        more = {
            "META_DATA_EXPORT": (
                ("name", "value"),
                [("EXPORT_SCHEMA_VERSION", "3.28.1"), ("EXPORT_PARAM_TIME_NORMALIZE", "true")],
            ),
            "META_DATA_CAPTURE": (("name", "value"), [("PLUGIN_0:NAME", "vclock")]),
            "TARGET_INFO_SYSTEM_ENV": (
                ("name", "value"),
                [("Hostname", f"n{rank}"), ("DeviceEnvironment", f"RANK={rank};WORLD_SIZE=2")],
            ),
        }
        paths.append(write_nccl_report(tmp_path / f"{rank}.sqlite", calls, kernels, more=more))
    _, result = translate_reports(paths, tmp_path / "out.prv", "kernels,nvtx,nccl")
    assert result.clocks is not None
    found = find_difference(result.clocks, VCLOCK)
    if shared:
        assert found is not None and abs(found[0] - 30) < 1
        assert sorted(abs(round(node.correction.offset / US)) for node in result.clocks.nodes) == [0, 30]
    else:
        assert found is None and {node.correction.offset for node in result.clocks.nodes} == {0}
        assert any("aligned by vClock only" in warning for warning in result.warnings)
