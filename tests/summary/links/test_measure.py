"""Rates of messages and links against plain SQL and loops over real reports, and planted slow pairs."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from nsys2prv_ng.comparison.tables import make_tables
from nsys2prv_ng.html.blocks import Table
from nsys2prv_ng.html.page import render_page
from nsys2prv_ng.html.summary_sections.between_ranks import make_link_section
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.links.numbers import Link, LinkNumbers, SlowLink
from nsys2prv_ng.summary.links.table import describe_slow_links, tabulate_exchanges
from nsys2prv_ng.summary.text import format_summary
from nsys2prv_ng.text.layout import format_grid
from tests.conftest import Unpacked
from tests.sources.nccl.nccl_reports import COMMUNICATOR, PEER, RANK, RANKS, SIZE, Call, Kernel, write_nccl_report
from tests.summary.links.links_truth import Message, list_sent_bytes, read_blocking_mpi, read_nccl, read_ring
from tests.summary.made import IN_STEPS, summarize_reports
from tests.tiers import cases

PIPELINE = [f"exercises/ex3a-pp2.rank{rank}.sqlite" for rank in range(4)]


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


def sum_links(links: LinkNumbers, rows: Sequence[Link]) -> dict[tuple[int | None, int | None], tuple[int, int, int]]:
    return {ranks_of(links, row): (row.count, row.bytes, row.rated_ns) for row in rows}


@pytest.mark.slow
def test_rates_between_nodes_within_the_error_of_their_clocks(shared_reports: Path, unpacked: Unpacked) -> None:
    reports = locate(shared_reports, unpacked, PIPELINE)
    messages = read_nccl(reports)
    links = links_in(summarize_reports(reports))
    [size] = links.sizes
    ns = sum(message.ns for message in messages)
    assert (size.bytes, size.count, size.pairs, size.between_nodes) == (1 << 23, 128, 4, True)
    assert size.ns == pytest.approx(ns, abs=len(messages) * size.clock_error_ns)
    assert size.algorithm_bytes_per_s / 1e9 == pytest.approx(4.04, abs=0.02)
    assert size.algorithm_bytes_per_s == pytest.approx(128 * (1 << 23) / ns * 1e9, rel=0.01)
    found, truth = sum_links(links, links.links), sum_truth(messages)
    for pair, (count, total, moving) in truth.items():
        assert found[pair][:2] == (count, total)
        assert found[pair][2] == pytest.approx(moving, abs=count * size.clock_error_ns)
    assert [(links.nodes[row.sender], links.nodes[row.receiver], row.bytes) for row in links.node_links] == [
        ("gpunode01", "gpunode02", 64 << 23),
        ("gpunode02", "gpunode01", 64 << 23),
    ]
    assert links.slow == []


@pytest.mark.slow
def test_rates_on_one_clock_are_exact(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    reports = copy_to_hosts(locate(shared_reports, unpacked, PIPELINE), tmp_path, ["one-node"] * 4)
    messages = read_nccl(reports)
    links = links_in(summarize_reports(reports))
    assert sum_links(links, links.links) == sum_truth(messages)
    [size] = links.sizes
    times = sorted(message.ns for message in messages)
    assert (size.ns, size.low_ns, size.median_ns, size.high_ns) == (sum(times), times[31], times[64], times[96])
    assert not size.between_nodes and size.clock_error_ns == 0
    assert {ranks_of(links, rate): rate.median_ns for rate in links.rates} == {
        pair: sorted(one.ns for one in messages if (one.sender, one.receiver) == pair)[16]
        for pair in sum_truth(messages)
    }
    [inside] = links.node_links
    assert (inside.sender, inside.receiver, inside.count, inside.rated_ns) == (0, 0, 128, sum(times))


def test_rates_of_blocking_mpi(samples: Path) -> None:
    reports = [samples / f"mpi-4.rank{rank}.sqlite" for rank in range(4)]
    links = links_in(summarize_reports(reports))
    truth = [message for message in read_blocking_mpi(reports) if message.send_end >= message.both]
    rates = {
        ranks_of(links, row): (row.count, row.bytes * row.count, row.ns) for row in links.rates if row.together == 1
    }
    assert len(truth) >= 14 and rates == sum_truth(truth)
    sent = {(row[0], row[1]): row[2] for row in ((*ranks_of(links, link), link.bytes) for link in links.links)}
    assert sent == {(n, peer): size for n, path in enumerate(reports) for peer, size in list_sent_bytes(path).items()}
    for exchange in links.all_to_all:
        assert [rank.bytes for rank in exchange.sent] == [_sum_sent(path, exchange.function) for path in reports]
    assert [exchange.function for exchange in links.all_to_all] == ["MPI_Alltoall"]
    assert links.slow == []


def _sum_sent(report: Path, function: str) -> int:
    with closing(sqlite3.connect(report)) as database:
        return database.execute(
            """SELECT SUM(e.size) FROM MPI_COLLECTIVES_EVENTS e JOIN StringIds s ON s.id = e.textId
            WHERE s.value = ?""",
            (function,),
        ).fetchone()[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(["m-big", "m-base"], push=1))
def test_rates_of_a_ring_of_waits(shared_reports: Path, unpacked: Unpacked, name: str) -> None:
    reports = locate(shared_reports, unpacked, [f"whatif/{name}.rank{rank}.sqlite" for rank in range(4)])
    links = links_in(summarize_reports(reports))
    truth = [message for message in read_ring(reports) if message.ns]
    assert (len(truth) >= 40) == (name == "m-big")
    if name == "m-big":
        rates = {ranks_of(links, row): (row.count, row.bytes * row.count, row.ns) for row in links.rates}
        assert rates == sum_truth(truth)
    else:  # reports do not show that sends of this size wait
        assert links.rates == []
    assert links.slow == []


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


def summarize_groups(folder: Path, sizes: Sequence[Sequence[int]], ends: Sequence[int]) -> LinkNumbers:
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
    return links_in(summarize_reports(paths))


def test_an_even_group_moves_data_once_all_ranks_run(tmp_path: Path) -> None:
    links = summarize_groups(tmp_path, [[64] * 3] * 3, [5000, 6000, 8000])
    assert sum_links(links, links.links) == {
        (sender, receiver): (1, 64, [5000, 6000, 8000][receiver] - 3000)
        for sender in range(3)
        for receiver in range(3)
        if sender != receiver
    }
    assert {rate.together for rate in links.rates} == {4} and links.rated == links.messages == 6
    [exchange] = links.all_to_all
    assert (exchange.function, exchange.count, exchange.imbalance) == ("grouped sends", 3, 1.0)


def test_an_uneven_group_has_no_rates_but_an_imbalance(tmp_path: Path) -> None:
    sizes = [[0, 100, 200], [300, 0, 100], [50, 50, 0]]
    links = summarize_groups(tmp_path, sizes, [5000, 6000, 8000])
    assert links.rates == [] and links.rated == 0
    assert {ranks_of(links, link): link.bytes for link in links.links} == {
        (sender, receiver): sizes[sender][receiver]
        for sender in range(3)
        for receiver in range(3)
        if sender != receiver
    }
    [exchange] = links.all_to_all
    assert [(rank.rank, rank.bytes) for rank in exchange.sent] == [(0, 300), (1, 400), (2, 100)]
    assert exchange.imbalance == 400 * 3 / 800
    table = format_grid(tabulate_exchanges(links), 100)
    assert table[-1].split() == ["grouped", "sends", "rank", "1", "3", "100", "B", "267", "B", "400", "B", "1.50"]


def test_two_ranks_that_exchange_messages_are_no_all_to_all(tmp_path: Path) -> None:
    links = summarize_groups(tmp_path, [[0, 64], [64, 0]], [5000, 6000])
    assert sum_links(links, links.links) == {(0, 1): (1, 64, 4000), (1, 0): (1, 64, 3000)}
    assert links.all_to_all == [] and {rate.together for rate in links.rates} == {2}


# ---- what is shown ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_shown(shared_reports: Path, unpacked: Unpacked) -> None:
    found = summarize_reports(locate(shared_reports, unpacked, PIPELINE))
    text = format_summary(found, 120, details=True)
    line = next(line for line in text.splitlines() if line.startswith("NCCL      between nodes"))
    assert line.split()[3:8] == ["8.39", "MB", "4", "128", "2.08"] and "4.04 GB/s" in line
    section = make_link_section(found)
    assert section is not None
    tables = {block.caption.partition(",")[0]: block for block in section.blocks if isinstance(block, Table)}
    assert {"Messages between nodes", "Messages between GPUs"} < tables.keys()
    assert [row[:2] for row in tables["Messages between nodes"].rows] == [
        ["gpunode01", "gpunode02"],
        ["gpunode02", "gpunode01"],
    ]
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
    section = make_link_section(replace(found, waits=replace(found.waits, links=links)))
    page = render_page(title="", subtitle="", lines=[], warnings=[], sections=[section])
    assert "<img src=x" not in page and page.count("&lt;img src=x") > 8
    saved = json.loads(json.dumps(found.to_dict()))
    assert JobSummary.from_dict(saved).waits == found.waits
    for key, listed in (("links", "ends"), ("node_links", "nodes"), ("rates", "ends")):
        wrong = deepcopy(saved)
        wrong["waits"]["links"][key][0]["receiver"] = len(wrong["waits"]["links"][listed])
        with pytest.raises(ValueError, match="not listed"):
            JobSummary.from_dict(wrong)
    [row] = next(table for table in make_tables(found, found, totals=True) if table.key == "messages").rows
    assert row.name == "NCCL messages of 8.39 MB between nodes" and row.a == row.b == pytest.approx(2.08e6, rel=0.01)
