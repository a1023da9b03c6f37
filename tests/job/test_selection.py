"""What is chosen is in the trace, and nothing else: against SQL on the reports and against other ways to choose it."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.sources.registry import select_sources as choose_sources
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.translate import translate
from tests.trace_reader import read_trace


@pytest.fixture(scope="module")
def ddp(samples_folder):
    return sorted(samples_folder.glob("ddp-2x2.rank*.sqlite"))


@pytest.fixture(scope="module")
def samples_folder():
    from tests.conftest import SAMPLES

    return SAMPLES


def translated(reports, folder, sources=None, source_options=None, **selection):
    """(summary, trace) of a choice; the trace is sound and what was read was written or dropped."""
    options = TranslationPlan(
        sources=choose_sources(sources),
        source_options=source_options or SourceOptions(),
        selection=Selection(**selection),
    )
    summary = translate(reports, folder / "out.prv", options)
    assert not check_trace(folder / "out.prv").problems
    for source in summary.sources:
        assert source.read == source.written + sum(source.dropped.values()), source.name
    return summary, read_trace(folder / "out.prv").omit_path()


def sql(report, statement):
    with sqlite3.connect(f"{report.as_uri()}?mode=ro&immutable=1", uri=True) as connection:
        return connection.execute(statement).fetchall()


def utc(report):
    return sql(report, "select utcEpochNs from TARGET_INFO_SESSION_START_TIME")[0][0]


def opened(trace, event_type):
    events = trace.events
    return events[(events["type"] == event_type) & (events["value"] != 0)]


@pytest.mark.slow
def test_ranks(ddp, tmp_path):
    _, trace = translated(ddp, tmp_path, ranks=frozenset({1, 2}))
    assert trace.names["TASK"] == ["rank 1", "rank 2"]
    for task, rank in ((1, 1), (2, 2)):
        kernels = sum(int((opened(trace, t)["task"] == task).sum()) for t in (63000006, 63000007))
        assert kernels == sql(ddp[rank], "select count(*) from CUPTI_ACTIVITY_KIND_KERNEL")[0][0]
    # Messages between the two stay, those with others go: SendRecv goes round the four ranks.
    assert (trace.communications["tag"] == 55004).sum() == 1


@pytest.mark.slow
def test_ranks_that_are_not_there(ddp, tmp_path):
    with pytest.raises(UsageError, match="hold 0, 1, 2, 3"):
        translated(ddp, tmp_path, ranks=frozenset({7}))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_gpus(ddp, tmp_path):
    _, trace = translated(ddp, tmp_path, gpus=frozenset({3}))
    devices = {name for name in trace.names["THREAD"] if name.startswith(("CUDA-", "Metrics"))}
    assert devices and all(name.startswith(("CUDA-D3.", "Metrics GPU3")) for name in devices)
    assert len(trace.names["TASK"]) == 4, "host threads of all ranks stay"
    operations = sum(
        sql(ddp[3], f"select count(*) from CUPTI_ACTIVITY_KIND_{table}")[0][0]
        for table in ("KERNEL", "MEMCPY", "MEMSET")
    )
    assert trace.communications["tag"].isin([55001, 55002]).sum() == operations
    rows = trace.names["THREAD"]
    assert all(rows[row].startswith("CUDA-D3.") for row in trace.communications["receive_row"])


@pytest.mark.slow
def test_gpus_that_are_not_there(ddp, tmp_path):
    with pytest.raises(UsageError, match="hold GPU 0, 1, 2, 3"):
        translated(ddp, tmp_path, gpus=frozenset({8}))


def step_window(reports, text):
    """First begin and last end, in UTC, of the ranges with this text."""
    limits = [
        (begin + utc(report), end + utc(report))
        for report in reports
        for begin, end in sql(report, f"select start, end from NVTX_EVENTS where text = '{text}'")
    ]
    return min(begin for begin, _ in limits), max(end for _, end in limits)


@pytest.mark.slow
def test_nvtx_range_is_the_time_in_which_it_is_open_on_any_rank(ddp, tmp_path):
    low, high = step_window(ddp, "step 3")
    (tmp_path / "range").mkdir()
    (tmp_path / "time").mkdir()
    (tmp_path / "whole").mkdir()
    by_range, _ = translated(
        ddp, tmp_path / "range", source_options=SourceOptions(nvtx_range="step 3"), nvtx_range="step 3"
    )
    assert by_range.start_utc_ns + 1 >= low
    whole, _ = translated(ddp, tmp_path / "whole")
    window = (low - whole.start_utc_ns, high - whole.start_utc_ns)
    translated(ddp, tmp_path / "time", window=window)
    for suffix in ("prv", "row"):
        same = [(tmp_path / name / f"out.{suffix}").read_bytes() for name in ("range", "time")]
        assert same[0] == same[1]


def gpu_time(reports):
    """First begin and last end, in UTC, of the operations of all GPUs."""
    operations = "kernel", "memcpy", "memset"
    statement = " union ".join(f"select start, end from CUPTI_ACTIVITY_KIND_{table}" for table in operations)
    limits = [(begin + utc(r), end + utc(r)) for r in reports for begin, end in sql(r, statement)]
    return min(begin for begin, _ in limits), max(end for _, end in limits)


@pytest.mark.all_sets
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [frozenset({2}), frozenset({1, 3})])
def test_the_time_of_the_gpus(ddp, tmp_path, ranks):
    chosen = [ddp[rank] for rank in sorted(ranks)]
    low, high = gpu_time(chosen)
    some = ["kernels", "memory_operations", "nvtx", "os_runtime"]
    summary, trace = translated(ddp, tmp_path, some, only_gpus=True, ranks=ranks)
    assert summary.start_utc_ns == low - 2, "a ns before the window, which begins a ns before the operation"
    assert summary.duration_ns == high - low + 3
    assert summary.gpu_time_ns == (2, 2 + high - low) and "the GPUs work in " in summary.text()
    (tmp_path / "whole").mkdir()
    whole, _ = translated(ddp, tmp_path / "whole", some, ranks=ranks)
    assert whole.gpu_time_ns == (low - whole.start_utc_ns, high - whole.start_utc_ns)
    for duration, says in ((2 * (high - low), False), (2 * (high - low) + 1, True)):
        assert ("the GPUs work only in" in replace(whole, duration_ns=duration).text()) == says
    kernels = sum(int((trace.events["value"][trace.events["type"] == t] != 0).sum()) for t in (63000006, 63000007))
    assert kernels == sum(sql(r, "select count(*) from CUPTI_ACTIVITY_KIND_KERNEL")[0][0] for r in chosen)


@pytest.mark.slow
def test_the_time_of_gpus_without_operations(ddp, tmp_path):
    with pytest.raises(UsageError, match="no operation of a GPU was read"):
        translated(ddp, tmp_path, sources="nvtx", only_gpus=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_nvtx_range_open_several_times(ddp, tmp_path):
    """`forward` is open once a step: the time in kernels is that of the kernels within the union of these times."""
    pattern = "forw?rd"
    summary, trace = translated(ddp, tmp_path, source_options=SourceOptions(nvtx_range=pattern), nvtx_range=pattern)
    windows = []
    for begin, end in sorted(
        (begin + utc(r), end + utc(r))
        for r in ddp
        for begin, end in sql(r, "select start, end from NVTX_EVENTS where text = 'forward'")
    ):
        if windows and begin <= windows[-1][1]:
            windows[-1][1] = max(end, windows[-1][1])
        else:
            windows.append([begin, end])
    assert len(windows) > 1
    expected = kept = 0
    for report in ddp:
        zero = utc(report)
        for begin, end in sql(report, "select start, end from CUPTI_ACTIVITY_KIND_KERNEL"):
            parts = [max(0, min(end + zero, high) - max(begin + zero, low)) for low, high in windows]
            expected += sum(parts)
            kept += any(parts)
    states = trace.states[trace.states["row"].map(lambda row: trace.names["THREAD"][row].startswith("CUDA-"))]
    in_kernels = states[states["state"].isin([1, 5, 13])]  # 5: a kernel of NCCL waits for another rank
    assert (in_kernels["end"] - in_kernels["begin"]).sum() == expected
    assert next(s.written for s in summary.sources if s.name == "kernels") == kept


@pytest.mark.slow
def test_nvtx_range_that_is_not_there(ddp, tmp_path):
    with pytest.raises(UsageError, match="no NVTX range in any report has this text"):
        translated(ddp, tmp_path, source_options=SourceOptions(nvtx_range="stpe"), nvtx_range="stpe")


def test_min_duration(ddp, tmp_path):
    _, trace = translated(ddp[:1], tmp_path, shortest={"cuda_api": 100_000, "nvtx": 10**6})
    calls = sql(ddp[0], "select count(*) from CUPTI_ACTIVITY_KIND_RUNTIME where end - start >= 100000")[0][0]
    assert len(opened(trace, 63000000)) == calls
    ranges = sql(
        ddp[0], "select count(*) from NVTX_EVENTS where eventType = 59 and domainId = 0 and end - start >= 1000000"
    )[0][0]
    assert len(opened(trace, 9600)) == ranges
    marks = sql(ddp[0], "select count(*) from NVTX_EVENTS where eventType = 34")[0][0]
    assert len(opened(trace, 9650)) == marks, "points have no length"


@pytest.mark.parametrize(("domains", "kept"), [(("default",), {0}), (("NC*",), {1}), (("NCCL", "default"), {0, 1})])
def test_nvtx_domains(ddp, tmp_path, domains, kept):
    _, trace = translated(ddp[:1], tmp_path, "nvtx", SourceOptions(nvtx_domains=domains))
    for domain, number in ((0, 9600), (1, 9500)):
        ranges = sql(ddp[0], f"select count(*) from NVTX_EVENTS where eventType = 59 and domainId = {domain}")[0][0]
        assert len(opened(trace, number)) == (ranges if domain in kept else 0)


def test_demangled_names(ddp, tmp_path):
    _, trace = translated(ddp[:1], tmp_path, "kernels", SourceOptions(demangled_names=True))
    names = sql(
        ddp[0],
        "select d.value, count(*) from CUPTI_ACTIVITY_KIND_KERNEL k join StringIds d on d.id = k.demangledName"
        " join StringIds s on s.id = k.shortName where s.value not like 'nccl%' group by 1",
    )
    got = opened(trace, 63000006)["value"].map(trace.values[63000006]).value_counts().to_dict()
    assert sorted(got.values()) == sorted(count for _, count in names)
    assert {name[:480] for name in got} == {name[:480] for name, _ in names}
