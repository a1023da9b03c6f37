"""A process that translates damaged reports, a case for each seed: a crash ends this process and not the tests.

By hand: `python -m tests.damage_worker samples 17` runs the case of that seed, and prints what it is and how it ended.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from tests.conftest import REPORTS, SAMPLES
from tests.damage import damage_bytes, write_damaged_copy, write_trimmed
from tests.damage_truth import check_accounts
from tests.sources.nccl.payload_tables import BYTES, NAMES, NUMBERS, rewrite_payloads
from tests.sources.node.node_reports import write_node_reports

SECONDS = 120
"""Time for a case; most take less than one."""
MEMORY = 12 << 30
"""Address space (bytes): a larger demand of damaged data is a MemoryError and no burden to other processes."""


@cache
def _write_node_reports() -> list[Path]:
    """Write reports with metrics of a node: no others exist."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, True)
    return write_node_reports(folder)


@cache
def _write_payload_reports() -> list[list[Path]]:
    """Write reports with payloads in each form that nsys exports: no others exist with tables of payloads."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, True)
    groups = []
    for form in (NUMBERS, NAMES, BYTES):
        groups.append([folder / f"{form}-{path.name}" for path in _DDP])
        for path, copy in zip(_DDP, groups[-1], strict=True):
            rewrite_payloads(path, copy, form)
    return groups


_DDP = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))


@cache
def _make_labels() -> bytes:
    """Return the labels of the trace of a sample."""
    import nsys2prv_ng

    with tempfile.TemporaryDirectory() as folder:
        nsys2prv_ng.translate([SAMPLES / "single-graph.sqlite"], Path(folder) / "out.prv", jobs=1)
        return (Path(folder) / "out.pcf").read_bytes()


def list_bases(kind: str) -> list[list[Path]]:
    """Return groups of reports to damage, each of one job."""
    if kind == "nodes":
        return [_write_node_reports()]
    if kind == "payloads":
        return _write_payload_reports()
    if kind == "exercises":
        names = sorted({path.name.partition(".")[0] for path in REPORTS.glob("exercises/*.sqlite")})
        graphs = [name for name in names if name.startswith("tpgraph")]  # a quarter of the cases
        others = [name for name in names if name not in graphs]
        return [sorted(REPORTS.glob(f"exercises/{name}.*")) for name in [*graphs * max(len(others) // 3, 1), *others]]
    if kind == "samples":
        return [sorted(SAMPLES.glob(f"{name}*.sqlite")) for name in ("mpi-4.", "ddp-2x2.", "single-graph")]
    jobs = (
        "ompi_rank",
        "2node_rank",
        "nccl_mimic_rank",
        "mpich_all",
        "nvtx_py",
        "acc_gcc",
        "omp_clang",
        "osrt",
        "ompi_all",
    )
    cpu_groups = [sorted(REPORTS.glob(f"cpu/{v}-{job}*")) for v in ("2022.4.2", "2023.4.4", "2024.2.3") for job in jobs]
    names = ("um-1", "autograd-1", "oneproc-4gpu", "mpi-one-report", "single-node")
    gpu_groups = [[REPORTS / f"gpu/{name}.sqlite"] for name in names]
    return [
        group
        for group in [*cpu_groups, *gpu_groups, *([path] for path in sorted(REPORTS.glob("public/*.sqlite")))]
        if group
    ]


@dataclass
class Case:
    """Reports in a folder, options of nsys2prv_ng.translate, and a list of what was done, for people."""

    reports: list[Path]
    output: Path
    options: dict[str, Any]
    pages: int
    """Least number of pages of the tables that are read without sqlite3."""
    overview: int
    """Most bytes of an overview."""
    old: bool
    """Whether a trace of the same name exists before."""
    done: list[str] = field(default_factory=list)


def make_case(kind: str, seed: int, whole: Path, folder: Path) -> Case:
    """Make the case of a seed; trimmed reports stay in the folder `whole` for further cases."""
    rng = random.Random(f"{kind} {seed}")
    group = rng.choice(list_bases(kind))
    chosen = rng.sample(group, min(rng.choice((1, 1, 1, 2, 4)), len(group)))
    reports, done = [], []
    (folder / "reports").mkdir()
    (folder / "out").mkdir()
    for i, path in enumerate(chosen):
        base = whole / path.name
        if not base.exists():
            write_trimmed(path, base)
        if i == 0 or rng.random() < 0.2:
            report, ways = write_damaged_copy(base, folder / "reports", rng)
            reports.append(report)
            done += [f"{path.name}: {way}" for way in ways]
        else:
            reports.append(base)
            done.append(f"{path.name}: sound")
    options = _choose_options(rng, folder)
    if "align" in options or "labels_from" in options:
        _write_side_files(options, rng, done)
    rng.shuffle(reports)
    done.append(f"options {options}")
    name = rng.choice(("out.prv", "out.prv", "out.prv", "out.prv.gz"))
    return Case(
        reports, folder / "out" / name, options, rng.choice((1, 64)), rng.choice(OVERVIEWS), options["force"], done
    )


UNLIKE = {
    "sources": ("min_duration", "nvtx_range", "nvtx_domain", "metrics", "metrics_changes", "nccl_channels"),
    "time": ("metrics_changes", "steps", "skip_warmup"),
    "steps": ("metrics_changes", "skip_warmup"),
    "skip_warmup": ("metrics_changes",),
    "nvtx_range": ("metrics_changes",),
}
"""Options that mostly are an error beside this one, which tests little."""


def _choose_options(rng: random.Random, folder: Path) -> dict[str, Any]:
    def sometimes(probability: float, *values: object) -> object:
        return rng.choice(values) if rng.random() < probability else None

    ms = 10**6
    some = {
        "sources": sometimes(0.1, ["kernels", "nvtx"], ["mpi"], ["cuda_api"], ["gpu_metrics", "os_runtime"], ["nccl"]),
        "derived": sometimes(0.1, False),
        "align": sometimes(0.3, "utc", "collectives", "collectives", "none", str(folder / "clocks.toml")),
        "time": sometimes(0.25, "gpu", "gpu", (ms, 50 * ms), (None, 100 * ms), (0, None), (10 * ms, 10 * ms + 1)),
        "steps": sometimes(0.05, (1, 2), (None, 3), (2, None)),
        "skip_warmup": sometimes(0.1, True),
        "step": sometimes(0.02, "step", "x"),
        "nvtx_range": sometimes(0.05, "*", "step*", "*e*"),
        "ranks": sometimes(0.05, [0], [0, 1], [3], [-1, 2]),
        "gpus": sometimes(0.03, [0], [1, 2]),
        "min_duration": sometimes(0.1, {"kernels": 2000}, {"cuda_api": 10**5, "nvtx": 1000}, {"mpi": 1}),
        "nvtx_domain": sometimes(0.05, ["default"], ["N*"], ["nothing"]),
        "kernel_names": sometimes(0.2, "demangled"),
        "metrics": sometimes(0.02, ["SM*"], ["*"]),
        "metrics_changes": sometimes(0.05, True),
        "nccl_channels": sometimes(0.1, True),
        "osrt_min": sometimes(0.3, 0, 1, 10**7),
        "stack_depth": sometimes(0.2, 3, 100),
        "wait_lines": sometimes(0.2, 0, 1, 2**62),
        "fold_threads": sometimes(0.25, True),
        "overview_trace": sometimes(0.25, True),
        "several_jobs": sometimes(0.85, True),
        "labels_from": sometimes(0.1, folder / "other.pcf"),
        "memory": sometimes(0.3, 1, 1 << 16, 1 << 20),
        "strict": sometimes(0.05, True),
        "stats": sometimes(0.3, folder / "out" / "stats.json"),
        "align_report": sometimes(0.3, folder / "out" / "clocks.toml"),
        "summary": sometimes(0.1, True),
    }
    chosen = {name: value for name, value in some.items() if value is not None}
    for name, others in UNLIKE.items():
        if name in chosen and rng.random() < 0.9:
            chosen = {other: value for other, value in chosen.items() if other not in others}
    jobs = rng.choice((1, 1, 1, 2))
    return {**chosen, "jobs": jobs, "force": rng.random() < 0.15}


OVERVIEWS = (10**8, 10**6, 200_000, 50_000)
"""Bytes of an overview: as large as users have it, and so small that it cannot hold all of these reports."""
HOST = "gpunode02"
CLOCKS = '[node."{}"]\noffset_us = {}\ndrift_ppm = {}\nsince_utc_ns = 0\n'


def _write_side_files(options: dict[str, Any], rng: random.Random, done: list[str]) -> None:
    """Write the files that the options name, damaged or not."""
    sound = {
        "align": (
            "",
            "x",
            "node = 3\n",
            CLOCKS.format("a", "nan", 0),
            CLOCKS.format(HOST, 1.5, 20),
            CLOCKS.format(HOST, 9e18, 0),
            CLOCKS.format(HOST, -(2**62), -99),
        ),
        "labels_from": (
            "",
            "EVENT_TYPE\n0 63000006 CUDA kernel\nVALUES\n0 End\n2147483647 gemm\n",
            "EVENT_TYPE\n9 2147483647 CUDA kernel\n9 -5 NVTX range\nVALUES\n99999999999 a\n-3 b\n",
            "EVENT_TYPE\n0 63000000 NVTX default domain range\n",
        ),
    }
    for option, texts in sound.items():
        path = Path(str(options.get(option, "")))
        if option == "labels_from" and path.suffix and rng.random() < 0.7:
            path.write_bytes(_make_labels())
            done.append(damage_bytes(path, rng))
        elif path.suffix:
            text = rng.choice(texts)
            path.write_text(text)
            done.append(f"{path.name}: {text!r}")


def run_case(case: Case) -> str:
    """Translate the reports of a case; return what is wrong with the outcome, or the empty string."""
    import nsys2prv_ng
    from nsys2prv_ng.errors import TranslationError, escape_unprintable
    from nsys2prv_ng.report import pages
    from nsys2prv_ng.translation import overview_rows

    pages.SMALL = case.pages
    overview_rows.MOST_BYTES = case.overview
    out = case.output.parent
    if case.old:
        for suffix in ("prv", "pcf", "row"):
            (out / f"out.{suffix}").write_text("old")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    try:
        result = nsys2prv_ng.translate(case.reports, case.output, **case.options)
    except TranslationError as error:
        line = str(error)
        case.done.append(f"error: {line}")
        if not line or line != escape_unprintable(line):
            return f"not one line of text: {line!r}"
        after = {path.name: path.read_bytes() for path in out.iterdir()}
        return "" if after == before else f"left behind: {sorted(after)}"
    case.done.append("translated")
    return _check_outputs(case, result)


def _check_outputs(case: Case, result: Any) -> str:
    """Return what is wrong with the files of a translation or its result, or the empty string."""
    from nsys2prv_ng.paraver.checker.trace import check_trace

    out = case.output.parent
    expected = {case.output.name, "out.pcf", "out.row"} | ({"out.prv"} if case.old else set())
    expected |= {Path(case.options[name]).name for name in ("stats", "align_report") if name in case.options}
    if {path.name for path in out.iterdir()} != expected:
        return f"files are {sorted(path.name for path in out.iterdir())} and not {sorted(expected)}"
    checked = check_trace(case.output)
    if checked.problems:
        return "; ".join(map(str, checked.problems[:3]))
    counts = {"states": result.states, "events": result.events, "communications": result.communications}
    if any(checked.records[kind] != count for kind, count in counts.items()):
        return f"the trace has {checked.records} and the result {counts}"
    for source in result.sources:
        parts = (source.read, source.written, *source.dropped.values())
        if source.read != source.written + sum(source.dropped.values()) or min(parts) < 0:
            return f"{source.name}: read {source.read}, written {source.written}, dropped {source.dropped}"
    json.dumps(result.to_dict()).encode()
    result.text(verbose=True).encode()
    is_whole = not result.skipped and not case.options.keys() & {"ranks", "gpus"}
    is_known = is_whole and all(path.suffix == ".sqlite" for path in case.reports)
    return check_accounts(case.reports, result.sources) if is_known else ""


def compare_bytes(case: Case) -> str:
    """Translate with other jobs and memory; return what differs in the files, or the empty string."""
    import nsys2prv_ng
    from nsys2prv_ng.errors import TranslationError

    memory = 1 << 12 if "memory" not in case.options else 1 << 30
    found: list[dict[str, bytes]] = []
    for options in ({}, {"jobs": 3 - case.options["jobs"], "memory": memory}):
        error = ""
        try:
            nsys2prv_ng.translate(case.reports, case.output, **{**case.options, "force": True, **options})
        except TranslationError as raised:
            error = str(raised)
        files = case.output.parent.iterdir()
        found.append({path.name: path.read_bytes() for path in files if path.suffix != ".json"})
        found[-1]["error"] = error.encode()
    first, second = found
    names = sorted(name for name in first | second if first.get(name) != second.get(name))
    parts = [f"{name}: {_find_difference(first.get(name, b''), second.get(name, b''))}" for name in names]
    return f"other bytes with other jobs and memory: {' '.join(parts)}" if names else ""


def _find_difference(first: bytes, second: bytes) -> str:
    """Return both texts from a little before they differ."""
    unlike = (i for i, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1])
    at = max(next(unlike, min(len(first), len(second))) - 100, 0)
    return f"{first[at : at + 300]!r} {second[at : at + 300]!r}"


def look_into(reports: list[Path], page: Path, done: list[str]) -> str:
    """Inspect and sum up the reports, and compare them with themselves; return what is wrong, or the empty string."""
    import nsys2prv_ng
    from nsys2prv_ng.comparison.result import format_comparison
    from nsys2prv_ng.errors import TranslationError, escape_unprintable
    from nsys2prv_ng.inspection.text import format_inspection
    from nsys2prv_ng.summary.text import format_summary
    from tests.html.made import Page

    looks: dict[Callable[..., Any], Callable[[Any], str]] = {
        partial(nsys2prv_ng.inspect, reports): lambda found: format_inspection(found, 100),
        partial(nsys2prv_ng.summarize, reports, html=page): lambda found: format_summary(found, details=True),
        partial(nsys2prv_ng.compare, [reports, reports], html=page, labels=["one", "other"]): format_comparison,
    }
    for look, write in looks.items():
        try:
            found = look()
            text = write(found)
            json.dumps(found.to_dict(), allow_nan=False).encode()
            if page.exists() and (faults := Page(page.read_text(encoding="utf-8")).faults):
                return "; ".join(faults[:3])
        except TranslationError as error:
            text = str(error)
            if not text or "\n" in text:
                return f"not one line of text: {text!r}"
        done.append(f"looked into: {text[:60]}")
        for line in text.split("\n"):
            if line != escape_unprintable(line):
                return f"a terminal obeys {line!r}"
    return ""


def answer(kind: str, seed: int, whole: Path) -> dict[str, Any]:
    """Make and run a case; return what was done, and what is wrong."""
    case = None
    with tempfile.TemporaryDirectory(dir=whole.parent) as folder, _Capture(Path(folder) / "printed") as capture:
        try:
            case = make_case(kind, seed, whole, Path(folder))
            wrong = run_case(case)
            rng = random.Random(seed)
            if not wrong and rng.random() < 0.07:
                wrong = compare_bytes(case)
            if not wrong and seed % 10 == 0:
                wrong = look_into(case.reports, Path(folder) / "page.html", case.done)
        except Exception:
            wrong = traceback.format_exc()
        wrong = wrong or capture.read_text()
    return {"done": case.done if case else [], "wrong": wrong}


class _Capture:
    """The output printed meanwhile, also by libraries and child processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> _Capture:
        self._before = os.dup(1), os.dup(2)
        descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR)
        for number in (1, 2):
            os.dup2(descriptor, number)
        os.close(descriptor)
        return self

    def read_text(self) -> str:
        sys.stdout.flush()
        sys.stderr.flush()
        output = self.path.read_text(errors="replace")
        return output and f"printed: {output[:2000]}"

    def __exit__(self, *_: object) -> None:
        for number, before in zip((1, 2), self._before, strict=True):
            os.dup2(before, number)
            os.close(before)


def main() -> None:
    """Answer each seed, a line of standard input, with a line, until the input ends."""
    kind, whole = sys.argv[1], Path(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("error")  # a user would see them
    warnings.simplefilter("ignore", DeprecationWarning)
    for line in sys.stdin:
        faulthandler.dump_traceback_later(SECONDS * 0.9)
        print(json.dumps(answer(kind, int(line), whole)), flush=True)
        faulthandler.cancel_dump_traceback_later()


def run_by_hand(kind: str, seeds: list[str]) -> None:
    """Run the cases of some seeds, and print what they are and how they ended."""
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", DeprecationWarning)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "whole").mkdir()
        for seed in seeds:
            answered = answer(kind, int(seed), Path(folder) / "whole")
            print(seed, *answered["done"], answered["wrong"] or "all is well", sep="\n  ")


if __name__ == "__main__":
    if sys.argv[2].isdigit():
        run_by_hand(sys.argv[1], sys.argv[2:])
    else:
        main()
