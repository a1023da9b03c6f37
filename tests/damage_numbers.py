"""Summary, inspection, comparison and pages of damaged reports: each is whole, or ends in one line of text.

The number and the time of kernels and the time of GPUs are those of plain SQL. Saved numbers are damaged and compared.
"""

from __future__ import annotations

import json
import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsys2prv_ng.options.calls import JobOptions
from tests.damage_saved import damage_summary
from tests.damage_truth import check_gpu_numbers

if TYPE_CHECKING:
    from nsys2prv_ng.comparison.result import Comparison

SAVED = 10
"""Damaged files of numbers to compare, for each job."""
_SELECTING = {"time", "steps", "skip_warmup", "nvtx_range", "ranks", "gpus"}
_OF_JOBS = {field.name for field in fields(JobOptions)}


def look_into(reports: Sequence[Path], folder: Path, options: Mapping[str, Any], done: list[str]) -> str:
    """Inspect and sum up the reports, and compare them with themselves; return what is wrong, or the empty string.

    `folder`: for pages, made here. `options`: of a translation; those that do not choose a trace hold here as well.
    """
    folder.mkdir()
    own = {name: value for name, value in options.items() if name in _OF_JOBS}
    for look in (_inspect, _summarize, _compare, _compare_saved):
        if wrong := _run(look, reports, folder, own, done):
            return f"{look.__name__.strip('_')}: {wrong}"
    return ""


def _run(
    look: Callable[..., str], reports: Sequence[Path], folder: Path, options: Mapping[str, Any], done: list[str]
) -> str:
    """Run one of the calls; return what is wrong with its answer or error, or the empty string."""
    from nsys2prv_ng.errors import TranslationError, escape_unprintable

    before = _list_files(folder)
    try:
        wrong = look(reports, folder, options)
    except TranslationError as error:
        line = str(error)
        done.append(f"{look.__name__.strip('_')}, error: {line}")
        if not line or line != escape_unprintable(line):
            return f"not one line of text: {line!r}"
        after = _list_files(folder)
        return "" if after == before else f"left behind: {sorted(after - before)}"
    done.append(f"{look.__name__.strip('_')}: done")
    return wrong


def _list_files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _inspect(reports: Sequence[Path], folder: Path, options: Mapping[str, Any]) -> str:
    import nsys2prv_ng
    from nsys2prv_ng.inspection.text import format_inspection

    inspection = nsys2prv_ng.inspect(reports, jobs=options["jobs"])
    json.dumps(inspection.to_dict(), allow_nan=False).encode()
    return _check_text(format_inspection(inspection, 100) + "\n".join(inspection.faults))


def _summarize(reports: Sequence[Path], folder: Path, options: Mapping[str, Any]) -> str:
    import nsys2prv_ng
    from nsys2prv_ng.summary.text import format_summary

    page = folder / "summary.html"
    summary = nsys2prv_ng.summarize(reports, **{"time": ":", **options, "html": page})
    text = json.dumps(summary.to_dict(), allow_nan=False)
    if nsys2prv_ng.JobSummary.from_dict(json.loads(text)) != summary:
        return "not the same after it was written and read"
    is_whole = not summary.skipped and not options.keys() & _SELECTING
    is_known = is_whole and all(path.suffix == ".sqlite" for path in reports)
    wrong = check_gpu_numbers(reports, summary) if is_known else ""
    return wrong or _check_text(format_summary(summary, details=True)) or _check_page(page)


def _compare_saved(reports: Sequence[Path], folder: Path, options: Mapping[str, Any]) -> str:
    """Compare damaged numbers of the job, as `summarize` and `translate` save them, with sound ones."""
    import nsys2prv_ng
    from nsys2prv_ng.errors import TranslationError, escape_unprintable

    sound, stats, page = (folder / name for name in ("sound.json", "stats.json", "saved.html"))
    summary = nsys2prv_ng.translate(reports, folder / "saved.prv", **options, stats=stats, summary=True).summary
    assert summary is not None
    summary.save(sound)
    rng = random.Random(sound.stat().st_size)
    for number in range(SAVED):
        damaged = folder / f"damaged{number}.json"
        what = damage_summary(rng.choice((sound, sound, sound, stats)), damaged, rng)
        sides = rng.choice(([sound, damaged], [damaged, sound], [damaged, damaged]))
        try:
            wrong = _check_comparison(nsys2prv_ng.compare(sides, html=page, labels=["one", "other"]), page)
        except TranslationError as error:
            line = str(error)
            wrong = "" if line and line == escape_unprintable(line) else f"not one line of text: {line!r}"
        except Exception:
            wrong = traceback.format_exc()
        if wrong:
            return f"{what}: {wrong}"
    return ""


def _compare(reports: Sequence[Path], folder: Path, options: Mapping[str, Any]) -> str:
    import nsys2prv_ng

    page = folder / "comparison.html"
    comparison = nsys2prv_ng.compare([reports, reports], **{**options, "html": page, "labels": ["one", "other"]})
    return _check_comparison(comparison, page)


def _check_comparison(comparison: Comparison, page: Path) -> str:
    from nsys2prv_ng.comparison.result import format_comparison

    json.dumps(comparison.to_dict(), allow_nan=False).encode()
    return _check_text(format_comparison(comparison)) or _check_page(page)


def _check_text(text: str) -> str:
    """Return the first line with what a terminal would obey, or the empty string."""
    from nsys2prv_ng.errors import escape_unprintable

    return next((f"a terminal obeys {line!r}" for line in text.split("\n") if line != escape_unprintable(line)), "")


def _check_page(page: Path) -> str:
    """Return what is wrong with the elements of a page, or the empty string."""
    from tests.html.made import Page

    return "; ".join(Page(page.read_text(encoding="utf-8")).faults[:3])
