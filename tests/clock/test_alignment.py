"""Ways to align, the table of clocks and what is told of it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.clock.alignment import ReportClock, align_clocks, fit_from_matches, parse_alignment
from nsys2prv_ng.clock.alignment_table import Alignment, NodeClock, read_table
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.clock.matches import (
    NEVER_ENTERS,
    NEVER_LEAVES,
    Lines,
    Matches,
    Violations,
    find_violations,
    match_reports,
    move_within_bounds,
)
from nsys2prv_ng.errors import TranslationError, UsageError
from tests.clock.simulated import Program, run

UTC = 1_700_000_000 * 10**9
REPORTS = [ReportClock(0, UTC), ReportClock(1, UTC + 500), ReportClock(1, UTC + 2000), ReportClock(0, None)]


def test_utc_and_none() -> None:
    alignment, maps = align_clocks("utc", REPORTS, ["a", "b"])
    assert alignment.utc_base == UTC
    assert maps == [ClockMap(0), ClockMap(500), ClockMap(2000), ClockMap(0)]
    alignment, maps = align_clocks("none", REPORTS, ["a", "b"])
    assert alignment.utc_base == UTC
    assert maps == [ClockMap(0)] * 4


def test_clocks_that_are_centuries_apart() -> None:
    """As damage makes them: their sums do not fit 64 bits."""
    far = [ReportClock(0, -(2**62) + 1), ReportClock(1, 2**62 - 1)]
    with pytest.raises(TranslationError, match="centuries apart"):
        align_clocks("utc", far, ["a", "b"])


def test_reports_of_a_node_keep_their_distance() -> None:
    correction = ClockMap(-70, 20e-6, UTC + 10**9)
    one, other = correction.after_utc(500, UTC), correction.after_utc(2_000_000_500, UTC)
    times = np.arange(-(10**10), 10**10, 10**7 + 1)
    assert (one(times + 2_000_000_000) == other(times)).all()
    assert one.at(10**9 - 500) == 10**9 - 70  # at `since` there is the offset only


def test_table_round_trip(tmp_path: Path) -> None:
    nodes = [
        NodeClock("a", model="offset", reference="a", collectives=5, median=10.0, percentile_95=20.0, bound=0.0),
        NodeClock('odd "name".1 é', ClockMap(-1_234_567, -1.25e-5, UTC + 17), "offset and drift", "a", 5.5, 1e-7, 9.0),
    ]
    alignment = Alignment("auto", UTC, nodes, Violations(3, 5, 7.0), Violations(0, 5, 0.0))
    path = tmp_path / "clocks.toml"
    path.write_text(alignment.toml(), encoding="utf-8")
    read = read_table(path)
    assert list(read) == [node.name for node in nodes]
    for node in nodes:
        found = read[node.name]
        assert (found.offset, found.since) == (node.correction.offset, node.correction.since)
        assert math.isclose(found.drift, node.correction.drift, rel_tol=1e-12)
    _, maps = align_clocks(path, [ReportClock(0, UTC), ReportClock(1, UTC + 500)], [node.name for node in nodes])
    assert maps[0] == ClockMap(0)
    assert maps[1].at(17 - 500) == 17 - 1_234_567


def test_drift_survives_exactly_enough(tmp_path: Path) -> None:
    """A trace made by the file is the same, to the ns, over a hundred days."""
    simulated = run(Program(2, [[0, 1]], 300, 60.0))
    alignment = fit_from_matches("auto", simulated.matches, UTC, simulated.names)
    (tmp_path / "c.toml").write_text(alignment.toml(), encoding="utf-8")
    times = np.linspace(0, 2**53, 1001).astype(np.int64)
    for node in alignment.nodes:
        again = read_table(tmp_path / "c.toml")[node.name]
        difference = node.correction.after_utc(0, UTC)(times) - again.after_utc(0, UTC)(times)
        assert np.abs(difference).max() <= 1


def test_a_file_that_lacks_a_node(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[node."a"]\noffset_us = 2.5\n')
    alignment, maps = align_clocks(path, REPORTS, ["a", "b"])
    assert maps == [ClockMap(2500), ClockMap(500), ClockMap(2000), ClockMap(2500)]
    assert alignment.warnings == [f"{path} does not list b: keeping plain UTC there"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no [node.NAME]"),
        ("[node", "not a table of clocks"),
        ("node = 3", "no [node.NAME]"),
        ('[node.a]\noffset_us = "3"', "offset_us of node a"),
        ("[node.a]\noffset_us = nan", "offset_us of node a"),
        ("[node.a]\noffset_us = inf", "offset_us of node a"),
        ("[node.a]\noffset_us = 9e18", "offset_us of node a"),
        ("[node.a]\ndrift_ppm = true", "drift_ppm of node a"),
        ("[node.a]\ndrift_ppm = 5000\nsince_utc_ns = 1", "drift_ppm of node a is 5000"),
        ("[node.a]\ndrift_ppm = 5", "no since_utc_ns"),
    ],
)
def test_files_that_are_no_table(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(TranslationError) as raised:
        read_table(path)
    assert said in str(raised.value) and str(path) in str(raised.value) and "\n" not in str(raised.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TranslationError, match="cannot be read"):
        read_table(tmp_path / "none.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TranslationError, match="not a table"):
        read_table(tmp_path / "binary")


def test_ways(tmp_path: Path) -> None:
    assert [parse_alignment(way) for way in ("auto", "utc", "collectives", "none")] == [
        "auto",
        "utc",
        "collectives",
        "none",
    ]
    (tmp_path / "c.toml").write_text("")
    assert parse_alignment(str(tmp_path / "c.toml")) == tmp_path / "c.toml"
    with pytest.raises(UsageError, match="align='mpi'"):
        parse_alignment("mpi")


def test_the_table_for_a_terminal() -> None:
    simulated = run(Program(3, [[0, 1]], 300, 60.0))
    alignment = fit_from_matches("auto", simulated.matches, UTC, simulated.names)
    agreement, head, *rows, last = alignment.text().splitlines()
    bound = alignment.nodes[1].bound
    assert bound is not None
    within = f"within {bound / 1000:.1f} us of the reference (95 % bound)"
    assert agreement == f"clocks of all compared nodes are {within}, 1 node not compared"
    assert head.split()[:2] == ["clock", "of"]
    assert [row.split()[0] for row in rows] == simulated.names
    assert rows[0].endswith("reference") and rows[1].endswith("offset and drift") and rows[2].endswith("utc")
    correction = alignment.nodes[1].correction
    assert f"{correction.offset / 1000:,.1f}" in rows[1] and f"{correction.drift * 1e6:.2f}" in rows[1]
    before, after = alignment.before, alignment.after
    assert last.startswith(f"{after.broken} of {after.checked} ") and f" ({before.broken} without correction)" in last


def test_the_table_of_clocks_that_were_not_compared() -> None:
    alignment, _ = align_clocks("utc", REPORTS, ["a", "b"])
    assert [line.split()[0] for line in alignment.text().splitlines()] == ["clock", "a", "b"]


# ---- causality -------------------------------------------------------------------------------------------------------


def operations(rows: list[tuple[int, int, int, int]]) -> Matches:
    """From rows (operation, domain, enter, leave)."""
    columns = dict(zip(("instance", "domain", "enter", "leave"), np.array(rows, np.int64).T, strict=True))
    return match_reports({**columns, "group": np.zeros(len(rows), np.int64), "fits": np.ones(len(rows), np.bool_)})


def flat(*offsets: float) -> Lines:
    return Lines(np.array(offsets), np.zeros(len(offsets)), np.zeros(len(offsets)))


def test_violations_against_all_pairs() -> None:
    random = np.random.default_rng(1)
    rows = []
    for operation in range(500):
        for domain in range(4):
            enter, leave = sorted(random.integers(0, 1000, 2).tolist())
            kind = random.integers(0, 4)
            rows.append(
                (operation, domain, enter if kind != 1 else NEVER_ENTERS, leave + 600 if kind != 2 else NEVER_LEAVES)
            )
    lines = Lines(random.uniform(-100, 100, 4), random.uniform(-0.05, 0.05, 4), random.uniform(0, 1000, 4))
    of_operation: dict[int, list[tuple[int, int, int]]] = {}
    for operation, domain, enter, leave in rows:
        moved = [
            t if t in (NEVER_ENTERS, NEVER_LEAVES)
            else t + int(np.rint(lines.offset[domain] + lines.drift[domain] * (t - lines.since[domain])))
            for t in (enter, leave)
        ]  # fmt: skip
        of_operation.setdefault(operation, []).append((domain, moved[0], moved[1]))
    late = []
    checked = 0
    for each in of_operation.values():
        waits = [e - w for _, e, _ in each for _, _, w in each if e != NEVER_ENTERS and w != NEVER_LEAVES]
        checked += bool(waits)
        late.append(max(waits, default=0))
    expected = Violations(sum(x > 0 for x in late), checked, max(late))
    assert find_violations(operations(rows), lines) == expected
    assert 0 < expected.broken < expected.checked


def test_bounds_move_clocks_within_their_error_only() -> None:
    """Domain 1 seems to leave 40 ns before domain 0 enters; that it leaves later than 60 is as much as it may."""
    rows = [(0, 0, 100, 200), (0, 1, 50, 60), (1, 0, 300, 400), (1, 1, 310, 420)]
    matches = operations(rows)
    fixed = np.array([True, False])
    moved = move_within_bounds(matches, flat(0, 0), np.array([0.0, 50.0]), fixed)
    assert moved.offset[0] == 0 and 40 <= moved.offset[1] <= 42
    assert find_violations(matches, moved).broken == 0
    kept = move_within_bounds(matches, flat(0, 0), np.array([0.0, 30.0]), fixed)
    assert kept.offset.tolist() == [0, 0]


def test_bounds_that_contradict_each_other_move_nothing() -> None:
    rows = [(0, 0, 100, 200), (0, 1, 50, 60), (1, 1, 600, 700), (1, 0, 450, 550)]
    kept = move_within_bounds(operations(rows), flat(0, 0), np.array([0.0, 1000.0]), np.array([True, False]))
    assert kept.offset.tolist() == [0, 0]
