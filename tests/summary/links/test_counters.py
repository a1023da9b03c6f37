"""Counters of links against plain SQL and loops over real reports, and over made reports of network cards."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from nsys2prv_ng.html.page import render_page
from nsys2prv_ng.html.summary_sections.between_ranks import make_link_section
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.links.numbers import LinkMetric
from nsys2prv_ng.summary.links.table import tabulate_link_metrics
from nsys2prv_ng.summary.text import format_summary
from nsys2prv_ng.text.layout import format_grid
from tests.analysis.gpus.test_metrics import make_report
from tests.conftest import Unpacked
from tests.report_sets import sets
from tests.sources.nccl.nccl_reports import COMMUNICATOR, RANK, RANKS, SIZE, Call, Kernel, write_nccl_report
from tests.sources.node.node_reports import METRIC_OF_PORT, NETWORK_METRICS, NICS, SWITCHES
from tests.sources.small_reports import UTC, Rows
from tests.summary.links.counters_truth import Spans, find_last, measure, read_all_reduces, read_counters, unite
from tests.summary.made import IN_STEPS, summarize_reports
from tests.tiers import cases

SETS = {
    "samples/ddp-2x2": [f"samples/ddp-2x2.rank{rank}.sqlite" for rank in range(4)],
    "gpu/ddp-2x2": [f"gpu/ddp-2x2.rank{rank}.sqlite" for rank in range(4)],
    "bench/ddplong-2x2": [f"bench/ddplong-2x2.rank{rank}.sqlite.xz" for rank in range(4)],
}
ALONE = {
    "samples/single-graph": "samples/single-graph.sqlite",
    "gpu/single-node": "gpu/single-node.sqlite",
    "whatif/w-shapes": "whatif/w-shapes.rank0.sqlite",
    "whatif/x-uneven": "whatif/x-uneven.rank0.sqlite",
}


def locate(samples: Path, shared_reports: Path, unpacked: Unpacked, name: str) -> Path:
    kind, _, file = name.partition("/")
    return samples / file if kind == "samples" else unpacked(shared_reports / name)


def copy_to_one_host(reports: Sequence[Path], folder: Path) -> list[Path]:
    """Copy reports of one clock, which two host names pretend to be two nodes, to one node: no clock has an error."""
    copies = [Path(shutil.copy(report, folder / f"{n}.sqlite")) for n, report in enumerate(reports)]
    for copy in copies:
        with closing(sqlite3.connect(copy)) as database, database:
            database.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = 'one-node' WHERE name = 'Hostname'")
    return copies


def list_windows(found: JobSummary) -> Spans:
    """Return the windows of a summary in UTC; all time for none."""
    windows = [(found.start_utc_ns + low, found.start_utc_ns + high) for low, high in found.windows_ns]
    return windows or [(0, 1 << 62)]


def compare_gpus(found: JobSummary, reports: Sequence[Path], spans: Mapping[int, Spans], nccl: str) -> None:
    counters, last = read_counters(reports), find_last(reports)
    by_gpu = {(metric.gpu, f"{metric.metric} [Throughput %]"): metric for metric in found.link_metrics}
    assert by_gpu.keys() == counters.keys() and len(by_gpu) == len(found.link_metrics) > 0
    for (gpu, name), samples in counters.items():
        metric, truth = by_gpu[gpu, name], measure(samples, list_windows(found), spans.get(gpu, []), last[gpu])
        assert metric.percent == pytest.approx(truth.mean, rel=1e-9)
        assert metric.percent == pytest.approx(truth.plain, rel=0.02, abs=0.02)
        assert (metric.samples, metric.nccl_samples, metric.nccl) == (truth.samples, truth.nccl_samples, nccl)
        assert metric.nccl_percent == (None if truth.nccl_mean is None else pytest.approx(truth.nccl_mean, rel=1e-9))
        assert metric.link == name.split()[0] and metric.bytes_per_s is metric.nccl_bytes_per_s is None


@pytest.mark.parametrize("name", sets(SETS, push=set(SETS) - {"bench/ddplong-2x2"}, quick=()))
def test_counters_of_gpus_during_transfer(
    name: str, samples: Path, shared_reports: Path, unpacked: Unpacked, tmp_path: Path
) -> None:
    reports = copy_to_one_host([locate(samples, shared_reports, unpacked, file) for file in SETS[name]], tmp_path)
    found = summarize_reports(reports, IN_STEPS)
    assert found.windows_ns and found.waits is not None and found.waits.not_split == {}
    compare_gpus(found, reports, read_all_reduces(reports), "transfer")
    assert min(metric.nccl_samples for metric in found.link_metrics) >= 5


@pytest.mark.all_sets
@pytest.mark.slow
def test_nothing_is_claimed_for_transfers_shorter_than_the_sampling_period(
    shared_reports: Path, unpacked: Unpacked
) -> None:
    """Transfers take 0.1 ms and samples 1 ms; steps have broadcasts too, which the loops do not split."""
    reports = [unpacked(shared_reports / "bench/torchrun-one-report.sqlite.xz")]
    found = summarize_reports(reports, IN_STEPS)
    counters, last = read_counters(reports), find_last(reports)
    assert len(found.link_metrics) == len(counters) == 40
    for metric in found.link_metrics:
        assert metric.gpu is not None
        samples = counters[metric.gpu, f"{metric.metric} [Throughput %]"]
        truth = measure(samples, list_windows(found), [], last[metric.gpu])
        assert (metric.percent, metric.samples) == (pytest.approx(truth.mean, rel=1e-9), truth.samples)
        assert metric.nccl == "transfer" and metric.nccl_samples < 5 and metric.nccl_percent is None


@pytest.mark.parametrize("name", sets(ALONE))
def test_counters_of_a_gpu_without_nccl(name: str, samples: Path, shared_reports: Path, unpacked: Unpacked) -> None:
    reports = [locate(samples, shared_reports, unpacked, ALONE[name])]
    compare_gpus(summarize_reports(reports, IN_STEPS), reports, {}, "")


@pytest.mark.slow
def test_all_the_time_of_nccl_kernels_counts_if_none_is_split(samples: Path, tmp_path: Path) -> None:
    reports = copy_to_one_host([samples / f"ddp-2x2.rank{rank}.sqlite" for rank in range(2)], tmp_path)
    found = summarize_reports(reports, IN_STEPS)
    assert found.waits is not None and found.waits.split == found.waits.below_uncertainty == 0
    compare_gpus(found, reports, read_all_reduces(reports, splits=False), "kernels")
    text = format_summary(found, 120, details=True)
    assert "kernels" in text[text.index("Link counters") :].split("PCIe")[0]
    assert "transfer" not in text[text.index("Link counters") :].split("PCIe")[0]


# ---- made reports: no capture with network cards was available -------------------------------------------------------

LIST = 7
COUNTERS = [
    (LIST, 6, "IB: Bytes sent", "", "bytes/ms"),
    (LIST, 7, "Eth: Bytes received", "", "bytes/ms"),
    (LIST, 8, "IB: Packets sent", "", "packets/ms"),
]
CARD, GUID = 1 << 48, 77
TRANSFERS = {"left": [(2_000, 6_000), (8_000, 9_000)], "right": [(12_000, 16_000)]}
"""When the two GPUs of each node transfer data (ns): both kernels of a collective start then at the latest."""


def write_node(
    folder: Path, host: str, first: int, samples: Sequence[tuple[int, int, int]], card: str = "mlx5_0"
) -> list[Path]:
    """Write the reports of two ranks that reduce among themselves; the first has samples: time, counter, value.

    The card and a switch have the same samples.
    """
    network: dict[str, Rows] = {
        "TARGET_INFO_NETWORK_METRICS": (NETWORK_METRICS, COUNTERS),
        "NIC_ID_MAP": (("nicId", "globalId"), [(3, CARD)]),
        "TARGET_INFO_NIC_INFO": (NICS, [(1, "", 3, card, 1, 1, 1)]),
        "NET_IB_DEVICE_INFO": (SWITCHES, [(1, GUID, "spine", "", 1)]),
        "NET_NIC_METRIC": (METRIC_OF_PORT, [(t, t + 10, CARD, 1, LIST, m, v) for t, m, v in samples]),
        "NET_IB_SWITCH_METRIC": (METRIC_OF_PORT, [(t, t + 10, GUID, 4, LIST, m, v) for t, m, v in samples]),
    }
    reports = []
    for rank in (first, first + 1):
        payload = {COMMUNICATOR: first + 1, RANKS: 2, RANK: rank - first, "CUDA device": rank - first}
        calls, kernels = [Call(1, 2, "ncclCommInitRank", payload)], []
        for number, (begin, end) in enumerate(TRANSFERS[host]):
            launch = 100 + 100 * number
            calls.append(
                Call(
                    launch,
                    launch + 20,
                    "ncclAllReduce",
                    {COMMUNICATOR: first + 1, SIZE: 64, "Reduction operation": "Sum"},
                )
            )
            early = begin - 700 if rank == first else begin
            kernels.append(Kernel(early, end, "ncclDevKernel_AllReduce", launch + 10, device=rank - first))
        more: dict[str, Rows] = {
            "TARGET_INFO_SYSTEM_ENV": (("name", "value"), [("Hostname", host), ("DeviceEnvironment", f"RANK={rank}")]),
            **(network if rank == first else {}),
        }
        reports.append(write_nccl_report(folder / f"{rank}.sqlite", calls, kernels, more=more))
    return reports


def draw_samples(seed: int) -> list[tuple[int, int, int]]:
    """Return samples of all counters every 100 ns, or a little later, with a gap."""
    rng = random.Random(seed)
    times = [100 * n + rng.randrange(20) for n in range(180) if not 30 <= n < 36]
    return [(t, m, rng.randrange(5_000_000)) for t in times for m in (6, 7, 8)]


def list_samples(samples: Sequence[tuple[int, int, int]], counter: int) -> list[tuple[int, float]]:
    return [(UTC + t, 1000.0 * v) for t, m, v in samples if m == counter]


def shift(spans: Spans) -> Spans:
    return [(UTC + begin, UTC + end) for begin, end in spans]


@pytest.mark.parametrize("window", cases([None, pytest.param((2_500, 14_000))], push=1))
def test_counters_of_cards_and_switches(tmp_path: Path, window: tuple[int, int] | None) -> None:
    samples = {host: draw_samples(seed) for seed, host in enumerate(TRANSFERS)}
    reports = [path for n, host in enumerate(TRANSFERS) for path in write_node(tmp_path, host, 2 * n, samples[host])]
    selection = None if window is None else Selection(window=window)
    found = summarize_reports(reports, selection)
    zero = found.start_utc_ns if window is None else found.start_utc_ns + 1 - window[0]
    everywhere = unite([span for spans in TRANSFERS.values() for span in spans])
    by_key = {(metric.node, metric.device, metric.metric): metric for metric in found.link_metrics}
    assert len(by_key) == len(found.link_metrics) == 8  # packets are no bytes
    for host, own in samples.items():
        for device, spans in (("NIC mlx5_0", TRANSFERS[host]), ("IB switch spine port 4", everywhere)):
            for counter, (link, name) in {
                6: ("InfiniBand", "IB: Bytes sent"),
                7: ("Ethernet", "Eth: Bytes received"),
            }.items():
                metric = by_key[host, device, name]
                low, high = (0, 1 << 62) if window is None else (zero + window[0], zero + window[1])
                kept = [(t, v) for t, v in list_samples(own, counter) if low <= t <= high]
                truth = measure(kept, [(low, high)], shift(spans), kept[-1][0], longest=250)
                assert (metric.link, metric.nccl, metric.gpu) == (link, "transfer", None)
                assert metric.bytes_per_s == pytest.approx(truth.mean, abs=1)
                assert (metric.samples, metric.nccl_samples) == (truth.samples, truth.nccl_samples)
                assert metric.nccl_bytes_per_s == pytest.approx(truth.nccl_mean, abs=1)
                assert metric.percent is metric.nccl_percent is None
    assert (
        by_key["left", "NIC mlx5_0", "IB: Bytes sent"].nccl_samples
        < by_key["left", "IB switch spine port 4", "IB: Bytes sent"].nccl_samples
    )


def test_two_reports_of_a_card_count_each_time_once(tmp_path: Path) -> None:
    samples = draw_samples(5)
    reports = write_node(tmp_path, "left", 0, samples)
    once = summarize_reports(reports).link_metrics
    with closing(sqlite3.connect(reports[1])) as database, database:
        database.execute("ATTACH ? AS other", (str(reports[0]),))
        for table in ("TARGET_INFO_NETWORK_METRICS", "NIC_ID_MAP", "TARGET_INFO_NIC_INFO", "NET_NIC_METRIC"):
            database.execute(f"CREATE TABLE {table} AS SELECT * FROM other.{table}")
    assert summarize_reports(reports).link_metrics == once


def test_few_samples_have_no_mean(tmp_path: Path) -> None:
    samples = [(t, 6, 100) for t in (1_950, 2_100, 2_250, 2_400)]
    found = summarize_reports(write_node(tmp_path, "left", 0, samples))
    card, _ = found.link_metrics
    assert (card.bytes_per_s, card.samples, card.nccl_bytes_per_s, card.nccl_samples) == (None, 4, None, 2)
    row = format_grid(tabulate_link_metrics([card]), 100)[-1]
    assert row.split() == ["InfiniBand", "IB:", "Bytes", "sent", "1", "-", "4", "-", "2"]


def test_percentages_of_other_units_and_no_links(tmp_path: Path) -> None:
    report = make_report(tmp_path / "a.sqlite", [(t, 0, 0, 5) for t in range(0, 100, 10)])
    found = summarize_reports([report])
    assert found.gpu_metrics and found.link_metrics == []
    assert "Link counters" not in format_summary(found, 100, details=True)


# ---- what is shown ---------------------------------------------------------------------------------------------------


def test_what_is_shown(tmp_path: Path) -> None:
    hostile = "`</script><img src=x onerror=hack()>"
    found = summarize_reports(write_node(tmp_path, "left", 0, draw_samples(1), card=hostile))
    gpu = LinkMetric(
        link="PCIe",
        node=hostile,
        gpu=0,
        device="GPU 0",
        metric=f"PCIe {hostile}",
        percent=12.25,
        bytes_per_s=None,
        samples=90,
        nccl="kernels",
        nccl_percent=50.0,
        nccl_bytes_per_s=None,
        nccl_samples=8,
    )
    found = replace(found, link_metrics=[gpu, *found.link_metrics])
    lines = format_grid(tabulate_link_metrics(found.link_metrics), 120)
    pcie = next(line for line in lines if line.startswith("PCIe"))
    assert pcie.split()[-5:] == ["1", "12.2%", "90", "50.0%", "8"]
    assert lines[-1].strip() == "Percentages are of the peak of the counter: reports do not contain the speed of links"
    rates = next(line for line in lines if line.startswith("InfiniBand"))
    assert rates.count(" GB/s") == 4 and "%" not in rates
    section = make_link_section(found)
    assert section is not None and section.presets[-2:] == ["hwcounters/pcie", "hwcounters/network_cards"]
    page = render_page(title="", subtitle="", lines=[], warnings=[], sections=[section])
    assert "<img src=x" not in page and page.count("&lt;img src=x") >= 3
    assert "12.2%" in page and "IB switch spine port 4" in page
    assert JobSummary.from_dict(json.loads(json.dumps(found.to_dict()))).link_metrics == found.link_metrics
