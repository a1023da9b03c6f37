"""Clocks of nodes that share only sends and receives: of real reports with injected errors, and of simulated chains."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.clock.alignment import AUTO, COLLECTIVES, ReportClock, align_clocks, fit_from_matches
from nsys2prv_ng.clock.alignment_table import Alignment
from nsys2prv_ng.clock.fit import DRIFT, OFFSET, UTC
from nsys2prv_ng.clock.matches import Delays, Matches, make_empty, match_evidence, match_reports
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.operations.parts import Evidence, RankMessages
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.runtime.progress import Progress
from tests.clock.injected import Error, aligned, put_into, utc_of
from tests.conftest import Unpacked
from tests.tiers import cases

MS, US, PPM = 10**6, 10**3, 1e-6
LINKS = [(0, 2), (1, 3)]


@pytest.fixture(scope="module")
def pipeline(shared_reports: Path, unpacked: Unpacked) -> list[Path]:
    """A pipeline of two stages on two nodes, which share no collective."""
    return [unpacked(shared_reports / f"exercises/ex3a-pp2.rank{rank}.sqlite") for rank in range(4)]


@pytest.fixture(scope="module")
def plain_pipeline(shared_reports: Path, unpacked: Unpacked) -> list[Path]:
    return [unpacked(shared_reports / f"exercises/ex3a-pp2-plain.rank{rank}.sqlite") for rank in range(4)]


@pytest.fixture(scope="module")
def measured(pipeline: list[Path]) -> dict[tuple[int, int], np.ndarray]:
    """Delays (ns) by sender and receiver: end of the k-th receiving kernel minus end of the k-th sending one."""
    ends: dict[tuple[int, str], np.ndarray] = {}
    for rank, report in enumerate(pipeline):
        with sqlite3.connect(report) as database:
            calls = database.execute(
                """SELECT COALESCE(n.text, s.value) AS name FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId
                WHERE name IN ('ncclSend', 'ncclRecv') ORDER BY n.start"""
            ).fetchall()
            kernels = database.execute(
                """SELECT k."end" FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
                WHERE s.value LIKE 'nccl%SendRecv%' ORDER BY k.start"""
            ).fetchall()
        # Each call has a kernel of its own, and they run in order on one stream.
        assert len(calls) == len(kernels) == 64
        for call in ("ncclSend", "ncclRecv"):
            ends[rank, call] = np.array([k for (name,), (k,) in zip(calls, kernels, strict=True) if name == call])
            ends[rank, call] += utc_of(report)
    pairs = [*LINKS, *((b, a) for a, b in LINKS)]
    return {(a, b): ends[b, "ncclRecv"] - ends[a, "ncclSend"] for a, b in pairs}


def test_the_measured_delays(measured: dict[tuple[int, int], np.ndarray]) -> None:
    """What the other tests rely on: links are symmetric to some tens of microseconds, with a tail."""
    for a, b in LINKS:
        there, back = measured[a, b], measured[b, a]
        assert there.size == back.size == 32
        assert there.min() > 500 * US and back.max() < 800 * US
        assert 30 * US < (np.median(back) - np.median(there)) / 2 < 40 * US


# ---- real reports ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_nodes_that_share_only_messages(pipeline: list[Path], tmp_path: Path) -> None:
    wrong = Error(37 * MS, 12 * PPM)
    copies = put_into(pipeline, [Error(), Error(), wrong, wrong], tmp_path)
    result = aligned(pipeline, copies, tmp_path, source="kernels")
    clocks = result.summary.clocks
    assert clocks is not None
    assert result.worst_us < 40
    (bound,) = [node.bound for node in clocks.nodes if node.name != node.reference]
    assert bound is not None and result.worst_us * 1000 <= bound < 100 * US
    # One in two messages arrives before it was sent by the injected clocks: those of one direction.
    assert (clocks.before.broken, clocks.after.broken, clocks.after.checked) == (64, 0, 128)
    assert result.models == {OFFSET} and not result.summary.warnings


@pytest.mark.slow
def test_four_clocks_in_two_pairs(pipeline: list[Path], tmp_path: Path) -> None:
    """Collectives connect ranks 0 and 1, and 2 and 3; only messages connect the pairs."""
    errors = [
        Error(0, 0, "a"),
        Error(-20 * MS, 5 * PPM, "b"),
        Error(37 * MS, 12 * PPM, "c"),
        Error(3 * MS, -9 * PPM, "d"),
    ]
    copies = put_into(pipeline, errors, tmp_path)
    result = aligned(pipeline, copies, tmp_path, source="kernels")
    assert result.summary.nodes == 4
    assert result.worst_apart_us < 40
    clocks = result.summary.clocks
    assert clocks is not None and clocks.after.broken == 0
    # Messages, which are symmetric to 40 us only, do not pull at what collectives know.
    for one, other in ((0, 1), (2, 3)):
        apart = [np.median(result.shown[rank] - result.true[rank]) for rank in (one, other)]
        assert abs(apart[0] - apart[1]) < 10 * US


@pytest.mark.all_sets
@pytest.mark.slow
def test_nothing_injected_moves_nothing(pipeline: list[Path], tmp_path: Path) -> None:
    """The asymmetry of the link, 36 us, is below the error that is reported for it."""
    result = aligned(pipeline, pipeline, tmp_path, source="kernels")
    assert result.worst_us == 0 and result.models == {UTC}
    asked = aligned(pipeline, pipeline, tmp_path, source="kernels", align="collectives")
    assert 0 < asked.worst_us < 40


@pytest.mark.slow
@pytest.mark.parametrize("way", ["auto", "collectives"])
@pytest.mark.parametrize("offset", cases([0, 37 * MS], push=1))
def test_collectives_of_different_communicators(
    plain_pipeline: list[Path], tmp_path: Path, way: str, offset: int
) -> None:
    """Without payload the all-reduces of both stages follow each other alike, and are none of each other's."""
    copies = put_into(plain_pipeline, [Error(), Error(), Error(offset), Error(offset)], tmp_path)
    result = aligned(plain_pipeline, copies, tmp_path, source="kernels", align=way)
    clocks = result.summary.clocks
    assert clocks is not None
    assert {node.correction.offset for node in clocks.nodes} == {0}
    assert {node.bound for node in clocks.nodes} == {None}
    (warning,) = [text for text in result.summary.warnings if "without payload" in text]
    assert warning.startswith("384 collectives") and warning.endswith("; export with --include-json=true")


@pytest.mark.slow
def test_kernels_without_payload_are_matched_within_nodes(plain_pipeline: list[Path], tmp_path: Path) -> None:
    """The k-th all-reduce of both ranks of a stage, as plain SQL orders them."""
    with open_job(plain_pipeline, tmp_path, ReadOptions(), Progress()) as job:
        operations, table = job.operations, job.operations.table
        shown: dict[int, list[tuple[int, ...]]] = {0: [], 1: []}
        for low, high in zip(operations.first[:-1], operations.first[1:], strict=True):
            part = operations.part[low:high]
            (domain,) = set(table.domain[part].tolist())
            shown[domain].append(tuple(sorted((table.end[part] - table.begin[part]).tolist())))
    expected = []
    for stage in (plain_pipeline[:2], plain_pipeline[2:]):
        ranks = []
        for report in stage:
            with sqlite3.connect(report) as database:
                rows = database.execute(
                    """SELECT k."end" - k.start FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
                    WHERE s.value LIKE 'nccl%AllReduce%' ORDER BY k.start"""
                )
                ranks.append([row[0] for row in rows])
        expected.append(sorted(tuple(sorted(pair)) for pair in zip(*ranks, strict=True)))
    assert sorted(sorted(pairs) for pairs in shown.values()) == sorted(expected)


# ---- simulated chains ------------------------------------------------------------------------------------------------


def chain(
    nodes: int,
    delays: tuple[np.ndarray, np.ndarray],
    *,
    offset: np.ndarray,
    drift: np.ndarray,
    messages: int,
    seconds: float,
    late: float = 0.0,
    seed: int = 0,
) -> Matches:
    """Messages between each node and the next, with delays drawn from those given for both directions.

    `late`: part of the messages to a receiver that is milliseconds late.
    """
    random = np.random.default_rng(seed)
    columns: list[tuple[np.ndarray, ...]] = []
    for link in range(nodes - 1):
        for is_forward in (True, False):
            sender, receiver = (link, link + 1) if is_forward else (link + 1, link)
            sent = np.sort(random.uniform(0, seconds * 1e9, messages))
            received = sent + random.choice(delays[0 if is_forward else 1], messages)
            received += np.where(random.random(messages) < late, random.uniform(1 * MS, 9 * MS, messages), 0)
            shown = [t + offset[d] + drift[d] * t for t, d in ((sent, sender), (received, receiver))]
            constant = [np.full(messages, x) for x in (link, is_forward, sender, receiver)]
            columns.append((*constant, *(np.rint(t).astype(np.int64) for t in shown)))
    parts = [np.concatenate(column) for column in zip(*columns, strict=True)]
    table = Delays(*(part.astype(kind) for part, kind in zip(parts, ("i8", "?", "i4", "i4", "i8", "i8"), strict=True)))
    nothing = match_reports(make_empty())
    return Matches(nothing.first, nothing.fits, nothing.group, nothing.domain, nothing.enter, nothing.leave, table)


def find_errors(alignment: Alignment, offset: np.ndarray, drift: np.ndarray, seconds: float) -> np.ndarray:
    """Return the largest error (ns) of each node against its reference at any time."""
    times = np.linspace(0, seconds * 1e9, 33)
    shown = times + offset[:, None] + drift[:, None] * times
    corrected = np.array(
        [
            t + n.correction.offset + n.correction.drift * (t - n.correction.since)
            for t, n in zip(shown, alignment.nodes, strict=True)
        ]
    )
    reference = [node.name for node in alignment.nodes].index(alignment.nodes[0].reference)
    return np.abs(corrected - corrected[reference]).max(axis=1)


NAMES = ["a", "b", "c", "d"]


@pytest.mark.parametrize(("seconds", "messages"), cases([(0.3, 400), (30.0, 4000)], quick=1))
@pytest.mark.parametrize(("late", "most"), [(0.0, 80 * US), (0.3, 85 * US), (0.7, 100 * US)])
@pytest.mark.parametrize("link", cases(map(pytest.param, LINKS), push=1))
def test_a_chain_of_four_nodes(
    measured: dict[tuple[int, int], np.ndarray],
    link: tuple[int, int],
    late: float,
    most: float,
    seconds: float,
    messages: int,
) -> None:
    """Every link is asymmetric in the same direction, so that the errors add up at their worst."""
    a, b = link
    offset = np.array([0.0, 37 * MS, -12 * MS, 5 * MS])
    drift = np.array([0.0, 12 * PPM, -8 * PPM, 3 * PPM])
    for seed in range(5):
        matches = chain(
            4,
            (measured[a, b], measured[b, a]),
            offset=offset,
            drift=drift,
            messages=messages,
            seconds=seconds,
            late=late,
            seed=seed,
        )
        alignment = fit_from_matches(AUTO, matches, 0, NAMES)
        errors = find_errors(alignment, offset, drift, seconds)
        assert errors.max() < most
        assert all(e <= n.bound for e, n in zip(errors, alignment.nodes, strict=True) if n.bound is not None)
        assert {node.model for node in alignment.nodes} == {DRIFT if seconds > 5 else OFFSET}


def test_errors_of_links_add_up() -> None:
    random = np.random.default_rng(3)
    delays = 600 * US + random.uniform(0, 200 * US, 1000)
    offset = np.arange(4) * 5.0 * MS
    matches = chain(4, (delays, delays), offset=offset, drift=np.zeros(4), messages=100, seconds=1.0)
    alignment = fit_from_matches(AUTO, matches, 0, NAMES)
    bound = {node.name: node.bound or 0.0 for node in alignment.nodes}
    assert alignment.nodes[0].reference in ("b", "c")  # the middle of the chain
    near, far = ("c", "d") if alignment.nodes[0].reference == "b" else ("b", "a")
    assert 80 * US < bound[near] < 150 * US and bound[far] > bound[near] + 80 * US


def test_one_direction_shows_nothing() -> None:
    delays = np.full(10, 600.0 * US)
    offset = np.array([0.0, 5.0 * MS])
    matches = chain(2, (delays, delays), offset=offset, drift=np.zeros(2), messages=100, seconds=1.0)
    forward = Delays(*(column[matches.delays.is_forward] for column in matches.delays))
    few = Delays(*(column[:107] for column in matches.delays))
    for delays_shown in (forward, few):
        shown = Matches(
            *(getattr(matches, n) for n in ("first", "fits", "group", "domain", "enter", "leave")), delays_shown
        )
        for way in (AUTO, COLLECTIVES):
            alignment = fit_from_matches(way, shown, 0, NAMES[:2])
            assert {node.correction.offset for node in alignment.nodes} == {0}
            assert any("nor enough messages in both directions" in text for text in alignment.warnings)


# ---- ranks that no call records --------------------------------------------------------------------------------------


def messages_of(
    rank: int, peer: int, times: list[tuple[bool, int]], *, job_rank: int | None, size: int = 0
) -> Evidence:
    """Sends (True) and receives of one process in a communicator of ranks, none of which records its own."""
    is_send = np.array([sends for sends, _ in times], np.bool_)
    time = np.array([at for _, at in times], np.int64)
    table = RankMessages(
        communicators=["00ff"],
        sizes=[size],
        uses=[(0, 100 + rank, NULL)],
        job_ranks={} if job_rank is None else {100 + rank: job_rank},
        job_size=2,
        communicator=np.zeros(time.size, np.int64),
        process=np.full(time.size, 100 + rank),
        peer=np.full(time.size, peer),
        is_send=is_send,
        order=time,
        time=time,
        handed=time,
        bytes=np.full(time.size, 8),
    )
    return Evidence(rank_messages=[table])


def test_ranks_by_the_order_of_the_job() -> None:
    there = [(True, 10), (False, 35)]
    back = [(False, 20), (True, 30)]
    known = [messages_of(0, 1, there, job_rank=4), messages_of(1, 0, back, job_rank=7)]
    _, matches = match_evidence(known, [0, 1], [0, 100])
    assert matches.delays.sent.tolist() == [10, 130] and matches.delays.received.tolist() == [120, 35]
    assert matches.delays.sender.tolist() == [0, 1] and np.unique(matches.delays.link).size == 1
    assert len(matches) == 2
    # A member without a known rank, or a member that is missing, may be any rank.
    unknown = [messages_of(0, 1, there, job_rank=4), messages_of(1, 0, back, job_rank=None)]
    missing = [messages_of(0, 1, there, job_rank=4, size=3), messages_of(1, 0, back, job_rank=7, size=3)]
    for evidence in (unknown, missing):
        assert len(match_evidence(evidence, [0, 1], [0, 100])[1]) == 0


# ---- clocks that are given -------------------------------------------------------------------------------------------


def exchange(offset: int) -> list[ReportClock]:
    """Two nodes with 20 messages in each direction that take 600 us; the second clock is ahead by `offset` (ns)."""
    starts = np.arange(20) * 10 * MS
    there = [*((True, int(t)) for t in starts), *((False, int(t) + 5 * MS + 600 * US) for t in starts)]
    back = [*((False, int(t) + 600 * US + offset) for t in starts), *((True, int(t) + 5 * MS + offset) for t in starts)]
    evidence = [messages_of(0, 1, there, job_rank=0), messages_of(1, 0, back, job_rank=1)]
    return [ReportClock(node, 10**18, each) for node, each in enumerate(evidence)]


def test_the_bound_of_utc_and_of_a_file(tmp_path: Path) -> None:
    clocks = exchange(3 * MS)
    fitted, _ = align_clocks("auto", clocks, ["a", "b"])
    error = fitted.nodes[1].bound
    assert error is not None and fitted.nodes[1].correction.offset == -3 * MS
    utc, maps = align_clocks("utc", clocks, ["a", "b"])
    assert [m.offset for m in maps] == [0, 0]
    assert utc.nodes[1].bound == pytest.approx(3 * MS + error, abs=2)
    assert (utc.after.broken, utc.after.checked) == (20, 40) and utc.nodes[0].bound == 0
    path = tmp_path / "c.toml"
    path.write_text('[node."b"]\noffset_us = -2900\n')
    given, _ = align_clocks(path, clocks, ["a", "b"])
    assert given.nodes[1].bound == pytest.approx(100 * US + error, abs=2) and given.after.broken == 0
    none, _ = align_clocks("none", clocks, ["a", "b"])
    assert [node.bound for node in none.nodes] == [None, None]


@pytest.mark.parametrize("offset", [0, 4 * US, -4 * US])
def test_a_correction_below_its_own_error_is_not_made(offset: int) -> None:
    kept, _ = align_clocks("auto", exchange(offset), ["a", "b"])
    assert [node.correction.offset for node in kept.nodes] == [0, 0]
    bound = kept.nodes[1].bound
    assert bound is not None and bound >= abs(offset) + 10 * US
    asked, _ = align_clocks("collectives", exchange(offset), ["a", "b"])
    assert asked.nodes[1].correction.offset == -offset
