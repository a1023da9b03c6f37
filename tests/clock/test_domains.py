"""Which reports share a clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.clock.domains import assign_nodes, find_doubtful_hosts, find_mixed_hosts
from nsys2prv_ng.report.database import Database
from nsys2prv_ng.report.export_settings import NORMALISED, SYSTEM, VCLOCK
from nsys2prv_ng.report.metadata import Metadata, Strings, read_metadata
from tests.sources.small_reports import export
from tests.tiers import cases

SECOND = 10**9
UTC = 1_700_000_000 * SECOND


def metadata(
    host: str = "n1", boot: int | None = None, utc: int = UTC, clock: str = SYSTEM, **environment: str
) -> Metadata:
    return Metadata(
        schema_version="3.20.3",
        nsys_version="2025",
        host=host,
        utc_of_zero=utc,
        duration=SECOND,
        boot_utc=boot,
        environment=environment,
        processes={},
        threads={},
        ranks={},
        nccl_ranks={},
        gpus={},
        gpu_of_device={},
        clock=clock,
    )


@pytest.mark.parametrize(
    ("reports", "nodes"),
    [
        ([metadata("a"), metadata("a"), metadata("b")], [0, 0, 1]),
        ([metadata("a", boot=5), metadata("a", boot=5 + SECOND - 1)], [0, 0]),
        ([metadata("a", boot=5), metadata("a", boot=5 + SECOND)], [0, 1]),
        ([metadata("a", boot=5), metadata("a")], [0, 0]),
        ([metadata("a", NSYS_HW_ID="1"), metadata("b", NSYS_HW_ID="1"), metadata("a", NSYS_HW_ID="2")], [0, 0, 1]),
        ([metadata("a", NSYS_HW_ID="1"), metadata("a")], [0, 1]),
        ([metadata("a", clock=VCLOCK), metadata("a"), metadata("a", clock=VCLOCK)], [0, 1, 0]),
        ([metadata("a", clock=VCLOCK), metadata("a", clock=NORMALISED)], [0, 1]),
        ([metadata("a", NSYS_HW_ID="1"), metadata("b", NSYS_HW_ID="1", clock=VCLOCK)], [0, 1]),
    ],
)
def test_nodes(reports: list[Metadata], nodes: list[int]) -> None:
    assert assign_nodes(reports)[0] == nodes


def test_hosts_with_several_clocks() -> None:
    a, virtual, other = metadata("a"), metadata("a", clock=VCLOCK), metadata("b", clock=VCLOCK)
    assert assign_nodes([a, virtual, other])[1] == ["a", "a (2)", "b"]
    (warning,) = find_mixed_hosts([a, virtual, other, a])
    assert "host a " in warning and "nodes; export all of its reports alike" in warning
    rebooted = metadata("a", boot=5), metadata("a", boot=5 + SECOND, clock=VCLOCK)
    for alike in ([a, metadata("b")], [virtual, other], [a, other], [*rebooted]):
        assert find_mixed_hosts(alike) == []


STARTED = ("Profiling has started.", 1)


@pytest.mark.parametrize(
    ("schema", "message", "time", "plugin", "clock"),
    cases(
        [
            ("3.28.1", STARTED, UTC, "vclock", VCLOCK),
            ("3.28.1", STARTED, UTC + 7, "vclock", VCLOCK),
            # The start is moved by exactly the UTC of the system's clock, or by something else.
            ("3.28.1", STARTED, UTC, "network_interface", SYSTEM),
            ("3.28.1", STARTED, UTC + 7, "network_interface", NORMALISED),
            # No evidence.
            ("3.28.1", ("Profiling has started.", 2), UTC, "", NORMALISED),
            ("3.28.1", ("Process was launched", 1), UTC, "", NORMALISED),
            ("unknown", ("Process was launched", 1), UTC, "", NORMALISED),
            # An nsys without vClock adds the UTC of the system's clock.
            ("3.25.0", ("Process was launched", 1), UTC, "", SYSTEM),
        ],
        quick=1,
    ),
)
def test_clock_of_a_normalised_export(
    tmp_path: Path, schema: str, message: tuple[str, int], time: int, plugin: str, clock: str
) -> None:
    for normalised in ("true", "false"):
        about = [("EXPORT_SCHEMA_VERSION", schema), ("EXPORT_PARAM_TIME_NORMALIZE", normalised)]
        about.append(("EXPORT_PARAM_TIME_SHIFT", "50"))
        tables = {
            "META_DATA_EXPORT": (("name", "value"), about),
            "META_DATA_CAPTURE": (("name", "value"), [("PLUGIN_0:NAME", plugin)]),
            "DIAGNOSTIC_EVENT": (("timestamp", "text", "timestampType"), [(time + 50, *message), (9, "Other", 1)]),
        }
        database = Database(export(tmp_path / f"{normalised}.sqlite", [], tables))
        found = read_metadata(database, Strings(database))
        assert (found.clock, found.utc_of_zero) == ((clock, -50) if normalised == "true" else (SYSTEM, UTC - 50))
        database.close()


@pytest.mark.parametrize("counter", [None, 0, 5, UTC, -(2**63), "x"])
def test_the_counter_at_the_start_is_no_evidence(tmp_path: Path, counter: object) -> None:
    """NVIDIA's reference does not say which machines record it, nor when it restarts: it decides nothing."""
    columns = ("utcEpochNs", "systemClockNs", "sessionStartCntVctNs")
    with_counter = {"TARGET_INFO_SESSION_START_TIME": (columns, [(UTC, 5 * SECOND, counter)])}
    without = {"TARGET_INFO_SESSION_START_TIME": (columns[:2], [(UTC, 5 * SECOND)])}
    found = []
    for name, tables in (("with", with_counter), ("without", without)):
        database = Database(export(tmp_path / f"{name}.sqlite", [], tables))
        found.append(read_metadata(database, Strings(database)))
        database.close()
    assert found[0] == found[1] and found[0].boot_utc == UTC - 5 * SECOND
    assert assign_nodes(found)[0] == [0, 0]


def test_boot_from_the_export(tmp_path: Path) -> None:
    start = {"TARGET_INFO_SESSION_START_TIME": (("utcEpochNs", "systemClockNs"), [(UTC, 5 * SECOND)])}
    database = Database(export(tmp_path / "r.sqlite", [], start))
    assert read_metadata(database, Strings(database)).boot_utc == UTC - 5 * SECOND
    database.close()


@pytest.mark.parametrize(
    ("settings", "zero"),
    [
        ({}, UTC),
        ({"EXPORT_PARAM_TIME_NORMALIZE": "false", "EXPORT_PARAM_TIME_SHIFT": "0"}, UTC),
        ({"EXPORT_PARAM_TIME_NORMALIZE": "true"}, 0),
        ({"EXPORT_PARAM_TIME_SHIFT": "-250"}, UTC + 250),
        ({"EXPORT_PARAM_TIME_NORMALIZE": "true", "EXPORT_PARAM_TIME_SHIFT": "250"}, -250),
        ({"EXPORT_CONFIG_TIME_SHIFT": "70"}, UTC - 70),
        ({"EXPORT_PARAM_TIME_SHIFT": "none"}, UTC),
    ],
)
def test_shifts_of_the_export(tmp_path: Path, settings: dict[str, str], zero: int) -> None:
    rows = [("EXPORT_SCHEMA_VERSION", "3.20.3"), *settings.items()]
    database = Database(export(tmp_path / "r.sqlite", [], {"META_DATA_EXPORT": (("name", "value"), rows)}))
    assert read_metadata(database, Strings(database)).utc_of_zero == zero
    database.close()


@pytest.mark.parametrize("host", ["localhost", "localhost.localdomain", "vm", "my-vm", "vm-3", "modal", "Modal"])
def test_generic_hosts_with_clashing_pids(host: str) -> None:
    process = 1 << 24 | 77
    both = [metadata(host), metadata(host, utc=UTC + SECOND // 2)]
    (warning,) = find_doubtful_hosts(both, [{process}, {process}])
    assert host in warning and "NSYS_HW_ID" in warning
    assert find_doubtful_hosts(both, [{process}, {process + 1}]) == []
    # Of one process, one after the other.
    assert find_doubtful_hosts([metadata(host), metadata(host, utc=UTC + 2 * SECOND)], [{process}, {process}]) == []


def test_names_of_their_own_are_trusted() -> None:
    for host in ("gpunode01", "nid008553", "vmware1", "modality"):
        assert find_doubtful_hosts([metadata(host), metadata(host)], [{77}, {77}]) == []
    with_id = [metadata("localhost", NSYS_HW_ID="1"), metadata("localhost", NSYS_HW_ID="1")]
    assert find_doubtful_hosts(with_id, [{77}, {77}]) == []
