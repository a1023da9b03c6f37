"""Rates of messages and links against plain SQL and loops over real reports, and planted slow pairs."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import pytest

from nsys2prv_ng.analysis.waits.clocks import place_parts
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.comparison.tables import make_tables
from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.html.page import render_page
from nsys2prv_ng.html.summary_sections.between_ranks import make_wait_section
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.links.messages import list_messages
from nsys2prv_ng.summary.links.numbers import LinkNumbers, SlowLink
from nsys2prv_ng.summary.links.table import describe_slow_links
from tests.analysis.efficiency.efficiency_reports import ALL_TIME, opened
from tests.conftest import Unpacked
from tests.sources.nccl.nccl_reports import COMMUNICATOR, PEER, RANK, RANKS, SIZE, Call, Kernel, write_nccl_report
from tests.summary.links.links_truth import Message, list_sent_bytes, read_blocking_mpi, read_nccl, read_ring
from tests.summary.made import IN_STEPS, summarize_reports
from tests.tiers import cases

PIPELINE = [f"exercises/ex3a-pp2.rank{rank}.sqlite" for rank in range(4)]


class Measured(NamedTuple):
    """A message: its bytes, transfer time (ns; 0 if it is not known), messages in its call, clock error (ns)."""

    bytes: int
    ns: int
    together: int
    error: float


def locate(shared_reports: Path, unpacked: Unpacked, names: Sequence[str]) -> list[Path]:
    return [unpacked(shared_reports / name) for name in names]


def copy_to_hosts(reports: Sequence[Path], folder: Path, hosts: Sequence[str]) -> list[Path]:
    copies = [Path(shutil.copy(report, folder)) for report in reports]
    for copy, host in zip(copies, hosts, strict=True):
        with closing(sqlite3.connect(copy)) as database, database:
            database.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE name = 'Hostname'", (host,))
    return copies


def slow_down(reports: Sequence[Path], messages: Sequence[Message]) -> None:
    """Let NCCL messages take twice as long from when both sides run: their kernels end later."""
    for message in messages:
        for rank, correlation in zip((message.sender, message.receiver), message.correlations, strict=True):
            with closing(sqlite3.connect(reports[rank])) as database, database:
                database.execute(
                    'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = "end" + ? WHERE correlationId = ?',
                    (message.ns, correlation),
                )


def links_in(found: JobSummary) -> LinkNumbers:
    assert found.waits is not None and found.waits.links is not None
    return found.waits.links


def ranks_of(links: LinkNumbers, pair: object) -> tuple[int | None, int | None]:
    sender, receiver = pair.sender, pair.receiver  # type: ignore[attr-defined]
    return links.ends[sender].rank, links.ends[receiver].rank


def sum_truth(messages: Sequence[Message]) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Return number, bytes and transfer time of each pair of ranks."""
    sums: dict[tuple[int, int], list[Message]] = defaultdict(list)
    for message in messages:
        sums[message.sender, message.receiver].append(message)
    return {
        pair: (len(own), sum(one.bytes for one in own), sum(one.ns for one in own))
        for pair, own in sorted(sums.items())
    }


def measure_pairs(reports: Sequence[Path]) -> list[tuple[tuple[int | None, int | None], Measured]]:
    """Return the ranks of each message of the package with its numbers."""
    with opened(reports, selection=ALL_TIME) as job:
        waits = find_waits(job)
        found = list_messages(job, waits, place_parts(job, job.operations.part), np.arange(waits.row.size))
        ranks = [
            [job.tree.ranks[task] for task in side.tolist()] for side in (found.sending_task, found.receiving_task)
        ]
    columns = (found.bytes.tolist(), found.ns.tolist(), found.together.tolist(), found.error.tolist())
    measured = [Measured(*row) for row in zip(*columns, strict=True)]
    return list(zip(zip(*ranks, strict=True), measured, strict=True))


def sum_pairs(
    messages: Sequence[tuple[tuple[int | None, int | None], Measured]],
) -> dict[tuple[int | None, int | None], tuple[int, int, int]]:
    """Return number, bytes and transfer time of each pair of ranks."""
    return {
        pair: (len(own), sum(one.bytes for one in own), sum(one.ns for one in own))
        for pair, own in sorted(group_by_key(messages).items())
    }


@pytest.mark.slow
def test_rates_between_nodes_within_the_error_of_their_clocks(shared_reports: Path, unpacked: Unpacked) -> None:
    reports = locate(shared_reports, unpacked, PIPELINE)
    messages = read_nccl(reports)
    links = links_in(summarize_reports(reports))
    [size] = links.sizes
    ns = sum(message.ns for message in messages)
    assert (size.bytes, size.count, size.pairs, size.between_nodes) == (1 << 23, 128, 4, True)
    assert size.algorithm_bytes_per_s / 1e9 == pytest.approx(4.04, abs=0.02)
    assert size.algorithm_bytes_per_s == pytest.approx(128 * (1 << 23) / ns * 1e9, rel=0.01)
    measured = measure_pairs(reports)
    error = max(one.error for _, one in measured)
    assert size.ns == pytest.approx(ns, abs=len(messages) * error)
    found, truth = sum_pairs(measured), sum_truth(messages)
    for pair, (count, total, moving) in truth.items():
        assert found[pair][:2] == (count, total)
        assert found[pair][2] == pytest.approx(moving, abs=count * error)
    assert links.nodes == ["gpunode01", "gpunode02"] and links.slow == []


@pytest.mark.slow
def test_rates_on_one_clock_are_exact(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    reports = copy_to_hosts(locate(shared_reports, unpacked, PIPELINE), tmp_path, ["one-node"] * 4)
    messages, measured = read_nccl(reports), measure_pairs(reports)
    assert sum_pairs(measured) == sum_truth(messages) and not any(one.error for _, one in measured)
    [size] = links_in(summarize_reports(reports)).sizes
    assert size.ns == sum(message.ns for message in messages) and not size.between_nodes


def test_rates_of_blocking_mpi(samples: Path) -> None:
    reports = [samples / f"mpi-4.rank{rank}.sqlite" for rank in range(4)]
    truth = [message for message in read_blocking_mpi(reports) if message.send_end >= message.both]
    measured = measure_pairs(reports)
    assert len(truth) >= 14
    assert sum_pairs([each for each in measured if each[1].ns and each[1].together == 1]) == sum_truth(truth)
    sent = {pair: size for pair, (_, size, _) in sum_pairs(measured).items()}
    assert sent == {(n, peer): size for n, path in enumerate(reports) for peer, size in list_sent_bytes(path).items()}
    assert links_in(summarize_reports(reports)).slow == []


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(["m-big", "m-base"], push=1))
def test_rates_of_a_ring_of_waits(shared_reports: Path, unpacked: Unpacked, name: str) -> None:
    """Of m-base, reports do not show that sends of this size wait."""
    reports = locate(shared_reports, unpacked, [f"whatif/{name}.rank{rank}.sqlite" for rank in range(4)])
    truth = [message for message in read_ring(reports) if message.ns]
    rated = [each for each in measure_pairs(reports) if each[1].ns]
    assert (len(truth) >= 40) == (name == "m-big")
    assert sum_pairs(rated) == (sum_truth(truth) if name == "m-big" else {})
    assert links_in(summarize_reports(reports)).slow == []


# ---- slow pairs ------------------------------------------------------------------------------------------------------


@pytest.mark.all_sets
@pytest.mark.slow
@pytest.mark.parametrize(
    ("pair", "hosts"),
    [
        ((0, 2), ["gpunode01", "gpunode01", "gpunode02", "gpunode02"]),
        pytest.param((3, 1), ["one-node"] * 4, marks=pytest.mark.all_sets),
        ((1, 3), ["n0", "n1", "n2", "n3"]),
    ],
)
def test_a_slow_pair_is_named(
    shared_reports: Path, unpacked: Unpacked, tmp_path: Path, pair: tuple[int, int], hosts: list[str]
) -> None:
    reports = copy_to_hosts(locate(shared_reports, unpacked, PIPELINE), tmp_path, hosts)
    before = read_nccl(reports)
    healthy = summarize_reports(reports, IN_STEPS)
    assert links_in(healthy).slow == [] and describe_slow_links(healthy.links) == []

    slow_down(reports, [message for message in before if (message.sender, message.receiver) == pair])
    found = summarize_reports(reports, IN_STEPS)
    links = links_in(found)
    [slow] = links.slow
    are_nodes = len(set(hosts)) == 4
    assert slow.are_nodes == are_nodes
    if are_nodes:
        assert (links.nodes[slow.sender], links.nodes[slow.receiver]) == (hosts[pair[0]], hosts[pair[1]])
    else:
        assert ranks_of(links, slow) == pair
    medians = {
        way: (1 << 23) / median(one.ns for one in before if (one.sender, one.receiver) == way) * 1e9
        for way in sum_truth(before)
    }
    assert slow.bytes_per_s == pytest.approx(medians.pop(pair) / 2, rel=0.1)
    assert slow.peers_low_bytes_per_s == pytest.approx(min(medians.values()), rel=0.1)
    assert slow.peers_high_bytes_per_s == pytest.approx(max(medians.values()), rel=0.1)
    assert (slow.peers, slow.bytes) == (3, 1 << 23) and slow.count >= 24
    [text] = describe_slow_links(found.links)
    ends = [f"`{hosts[rank]}`" if are_nodes else f"rank {rank} ({hosts[rank]} GPU {rank})" for rank in pair]
    assert text.startswith(f"{ends[0]} -> {ends[1]}: ") and "its 3 peers 3." in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        pytest.param([f"gpu/ddp-2x2.rank{rank}.sqlite" for rank in range(4)], id="ddp-2x2", marks=pytest.mark.all_sets),
        pytest.param(
            [f"whatif/m-late.rank{rank}.sqlite" for rank in range(4)], id="m-late", marks=pytest.mark.all_sets
        ),
        pytest.param([f"cpu/2024.2.3-2node_rank{rank}.sqlite" for rank in range(4)], id="2node"),
        pytest.param(
            [f"cpu/2024.2.3-ompi_rank{rank}.sqlite" for rank in range(4)], id="ompi", marks=pytest.mark.all_sets
        ),
        pytest.param(PIPELINE, id="ex3a-pp2"),
    ],
)
def test_no_pair_of_a_healthy_run_is_named(shared_reports: Path, unpacked: Unpacked, names: list[str]) -> None:
    for selection in (None, IN_STEPS):
        found = summarize_reports(locate(shared_reports, unpacked, names), selection)
        assert describe_slow_links(found.links) == []


# ---- kernels of several messages -------------------------------------------------------------------------------------


def write_groups(folder: Path, sizes: Sequence[Sequence[int]], ends: Sequence[int]) -> list[Path]:
    """Let each rank r send sizes[r][s] bytes to each other rank s in one kernel, from 1000 (r + 1) ns to its end."""
    ranks = range(len(sizes))
    paths = []
    for rank in ranks:
        payload = {COMMUNICATOR: 1, RANKS: len(sizes), RANK: rank, "CUDA device": rank}
        calls = [Call(1, 2, "ncclCommInitRank", payload), Call(10, 11, "ncclGroupStart")]
        for peer in (peer for peer in ranks if peer != rank):
            begin = 20 + 20 * peer
            for offset, name, size in ((0, "ncclSend", sizes[rank][peer]), (10, "ncclRecv", sizes[peer][rank])):
                own = {COMMUNICATOR: 1, SIZE: size, PEER: peer}
                calls.append(Call(begin + offset, begin + offset + 5, name, own))
        calls.append(Call(200, 220, "ncclGroupEnd"))
        kernel = Kernel(1000 * (rank + 1), ends[rank], "ncclDevKernel_SendRecv", 210, device=rank)
        paths.append(write_nccl_report(folder / f"{rank}.sqlite", calls, [kernel], environment=f"RANK={rank}"))
    return paths


@pytest.mark.parametrize("ranks", [3, 2])
def test_an_even_group_moves_data_once_all_ranks_run(tmp_path: Path, ranks: int) -> None:
    ends = [5000, 6000, 8000][:ranks]
    reports = write_groups(tmp_path, [[64] * ranks] * ranks, ends)
    measured = measure_pairs(reports)
    assert sum_pairs(measured) == {
        (sender, receiver): (1, 64, ends[receiver] - 1000 * ranks)
        for sender in range(ranks)
        for receiver in range(ranks)
        if sender != receiver
    }
    assert {one.together for _, one in measured} == {2 * (ranks - 1)}
    links = links_in(summarize_reports(reports))
    assert links.rated == links.messages == ranks * (ranks - 1)


def test_an_uneven_group_has_no_rates(tmp_path: Path) -> None:
    sizes = [[0, 100, 200], [300, 0, 100], [50, 50, 0]]
    reports = write_groups(tmp_path, sizes, [5000, 6000, 8000])
    links = links_in(summarize_reports(reports))
    assert links.sizes == [] and (links.rated, links.messages) == (0, 6)
    assert sum_pairs(measure_pairs(reports)) == {
        (sender, receiver): (1, sizes[sender][receiver], 0)
        for sender in range(3)
        for receiver in range(3)
        if sender != receiver
    }


# ---- what is shown ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_shown(shared_reports: Path, unpacked: Unpacked) -> None:
    found = summarize_reports(locate(shared_reports, unpacked, PIPELINE))
    [rate] = links_in(found).sizes
    assert (rate.library, rate.between_nodes, rate.bytes, rate.pairs, rate.count) == ("NCCL", True, 1 << 23, 4, 128)
    assert rate.algorithm_bytes_per_s == pytest.approx(4.04e9, rel=2e-3)
    assert "Slow link" not in str(make_wait_section(found))
    hostile = "`</script><img src=x onerror=hack()>"
    ends = [replace(end, node=hostile, task=hostile, rank=None) for end in links_in(found).ends]
    slow = SlowLink(
        library="NCCL",
        are_nodes=False,
        sender=0,
        receiver=2,
        bytes=1 << 23,
        count=32,
        bytes_per_s=10**9,
        peers=3,
        peers_low_bytes_per_s=2 * 10**9,
        peers_high_bytes_per_s=3 * 10**9,
    )
    assert found.waits is not None
    links = replace(links_in(found), ends=ends, nodes=[hostile, hostile], slow=[slow])
    section = make_wait_section(replace(found, waits=replace(found.waits, links=links)))
    page = render_page(title="", subtitle="", lines=[], warnings=[], sections=[section])
    assert "<img src=x" not in page and page.count("&lt;img src=x") == 4
    saved = json.loads(json.dumps(found.to_dict()))
    assert JobSummary.from_dict(saved).waits == found.waits
    for are_nodes, listed in ((False, "ends"), (True, "nodes")):
        wrong = {**vars(slow), "are_nodes": are_nodes, "receiver": len(saved["waits"]["links"][listed])}
        saved["waits"]["links"]["slow"] = [wrong]
        with pytest.raises(ValueError, match="not listed"):
            JobSummary.from_dict(saved)
    [row] = next(table for table in make_tables(found, found, totals=True) if table.key == "messages").rows
    assert row.name == "NCCL messages of 8.39 MB between nodes" and row.a == row.b == pytest.approx(2.08e6, rel=0.01)
