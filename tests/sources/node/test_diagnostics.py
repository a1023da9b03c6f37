"""Warnings and errors of nsys in a trace: which, when, and that they change nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.registry import select_sources
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.translate import translate
from tests.conftest import NO_REPORTS, REPORTS
from tests.report_sets import sets
from tests.sources.node.node_reports import DIAGNOSTICS, collect_lines
from tests.sources.small_reports import MAIN, UTC, Rows, export, get_account, translate_reports
from tests.trace_reader import read_trace

INFO, WARNING, ERROR = 1, 2, 3
TARGET, HOST = 1, 2
CALL = ("start", "end", "globalTid", "nameId")
LABEL = "nsys warning or error"


def tables(*messages: tuple[object, object, object, object], begin: int = 100, end: int = 200) -> dict[str, Rows]:
    """Messages as (time, kind of time, severity, text), and a call from `begin` to `end`."""
    return {
        "DIAGNOSTIC_EVENT": (DIAGNOSTICS, [(t, kind, 1, severity, text, MAIN) for t, kind, severity, text in messages]),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (CALL, [(begin, end, MAIN, 0)]),
    }


class Told(Progress):
    """Keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def test_messages_of_the_time_of_the_trace(tmp_path: Path) -> None:
    told = tables(
        (100, TARGET, WARNING, "a\n  b"),
        (150, TARGET, ERROR, "c"),
        (150, TARGET, INFO, "started"),
        (160, HOST, WARNING, "d"),
        (170, 0, WARNING, "a b"),
        (180, None, 4, "verbose"),
        (200, TARGET, None, "e"),
        (200, TARGET, ERROR, None),
        (-50, TARGET, WARNING, "f"),
        (99, TARGET, WARNING, "f"),
        (201, TARGET, WARNING, "g"),
        (None, TARGET, WARNING, "h"),
        (2**63 - 1, TARGET, WARNING, "h"),
    )
    report = export(tmp_path / "a.sqlite", ["cudaFree"], told)
    trace, summary = translate_reports([report], tmp_path / "x.prv", "cuda_api,diagnostics")
    without, alone = translate_reports([report], tmp_path / "y.prv", "cuda_api")
    shown = [(row, time, said[LABEL]) for row, time, said in collect_lines(trace) if LABEL in said]
    assert shown == [
        ("node", 0, "warning: a b"),
        ("node", 50, "error: c"),
        ("node", 70, "warning: a b"),
        ("node", 100, "error:"),
    ]
    # The trace is what it is without them, but for their row.
    assert (summary.start_utc_ns, summary.duration_ns) == (UTC + 100, 100) == (alone.start_utc_ns, alone.duration_ns)
    assert trace.names["TASK"] == [*without.names["TASK"], "host"]
    assert get_account(summary, "diagnostics").dropped == {"outside the time of the trace": 3, "no time": 2}
    assert (summary.messages.warnings, summary.messages.errors, summary.messages.reports) == (8, 2, 1)
    assert summary.to_dict()["messages"] == {"warnings": 8, "errors": 2, "reports": 1, "lost": 2}
    assert "nsys gave 8 warnings and 2 errors in 1 report; 2 report lost data" in summary.text()


def test_information_makes_no_row(tmp_path: Path) -> None:
    report = export(tmp_path / "a.sqlite", ["cudaFree"], tables((150, TARGET, INFO, "x"), (150, HOST, WARNING, "y")))
    trace, summary = translate_reports([report], tmp_path / "x.prv", "cuda_api,diagnostics")
    assert "host" not in trace.names["TASK"] and LABEL not in trace.types.values()
    assert not any(each.name == "diagnostics" for each in summary.sources)


def test_messages_alone_are_within_the_capture(tmp_path: Path) -> None:
    told = {"DIAGNOSTIC_EVENT": (DIAGNOSTICS, [(t, TARGET, 1, WARNING, "a", None) for t in (-1, 5, 20_000)])}
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", [], told)], tmp_path / "x.prv", "diagnostics")
    assert [(time, said) for _, time, said in collect_lines(trace) if LABEL in said] == [(5, {LABEL: "warning: a"})]
    assert summary.duration_ns == 10_000


@pytest.mark.slow
def test_clocks_windows_and_values_of_all_reports(tmp_path: Path) -> None:
    one = export(
        tmp_path / "1.sqlite", ["cudaFree"], tables((150, TARGET, WARNING, "z"), (120, TARGET, ERROR, "z")), utc=UTC
    )
    two = export(tmp_path / "2.sqlite", ["cudaFree"], tables((150, TARGET, WARNING, "b")), utc=UTC + 1000, host="other")
    trace, summary = translate_reports([two, one], tmp_path / "x.prv", "cuda_api,diagnostics")
    shown = [(time, said[LABEL]) for _, time, said in collect_lines(trace) if LABEL in said]
    assert shown == [(20, "error: z"), (50, "warning: z"), (1050, "warning: b")]
    assert [trace.values[66900000][i] for i in (1, 2, 3)] == ["error: z", "warning: b", "warning: z"]
    trace, summary = translate_reports([one, two], tmp_path / "y.prv", "cuda_api,diagnostics", window=(30, 1010))
    assert [said[LABEL] for _, _, said in collect_lines(trace) if LABEL in said] == ["warning: z"]
    assert get_account(summary, "diagnostics").dropped == {"outside the time of the trace": 2}


@pytest.mark.slow
def test_lost_data_is_a_warning_for_each_text(tmp_path: Path) -> None:
    everywhere = (150, HOST, WARNING, "12 events were lost.")
    maybe = (150, HOST, WARNING, "Not all CUDA events might have been collected.")
    reports = [
        export(tmp_path / f"{i}.sqlite", ["cudaFree"], tables(everywhere, maybe, *more), utc=UTC + i)
        for i, more in enumerate(
            [[], [(1, TARGET, ERROR, "Broken.")], [(1, TARGET, WARNING, "Buffer overflow " + "x" * 500)]]
        )
    ]
    progress = Told()
    options = TranslationPlan(sources=select_sources("cuda_api"), stats=tmp_path / "stats.json")
    summary = translate(reports, tmp_path / "x.prv", options, progress)
    expected = [
        "3 of 3 reports: nsys reports that data is missing: 12 events were lost.",
        f"{reports[1]}: nsys reports an error: Broken.",
        f"{reports[2]}: nsys reports that data is missing: Buffer overflow {'x' * 184} ... {'x' * 100}",
    ]
    assert [each for each in progress.warnings if "nsys reports" in each] == expected
    assert set(expected) <= set(summary.warnings)
    told = json.loads((tmp_path / "stats.json").read_text())
    assert told["messages"] == {"warnings": 7, "errors": 1, "reports": 3, "lost": 5} and set(expected) <= set(
        told["warnings"]
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    sets(
        [
            ("gpu/ddp-2x2.rank0", []),
            ("gpu/autograd-1", []),
            ("gpu/sampled-1", ["Tracing cuDNN library version 91.9", "cuDNN symbols found in"]),
            ("public/pipit_cloverleaf", ["Unable to collect CPU kernel IP samples"]),
        ]
    ),
)
def test_what_captures_say(name: str, expected: list[str], tmp_path: Path) -> None:
    """Ordinary messages do not cry wolf: capture ranges that end, processes without CUDA, plugins that are ended."""
    report = REPORTS / f"{name}.sqlite"
    if not report.exists():
        pytest.skip(NO_REPORTS)
    progress = Told()
    translate([report], tmp_path / "x.prv", TranslationPlan(sources=select_sources("cuda_api,diagnostics")), progress)
    said = [each.split("data is missing: ")[1] for each in progress.warnings if "nsys reports" in each]
    assert len(said) == len(expected) and all(a.startswith(b) for a, b in zip(sorted(said), expected, strict=True))
    trace = read_trace(tmp_path / "x.prv")
    shown = [label for label in trace.types.values() if label == LABEL]
    assert bool(shown) == (name != "gpu/ddp-2x2.rank0")
