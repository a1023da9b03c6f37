"""Summary, inspection, comparison and pages of damaged reports: each is whole, or ends in one line of text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from nsys2prv_ng.options.calls import JobOptions

_OF_JOBS = {field.name for field in fields(JobOptions)}


def look_into(reports: Sequence[Path], folder: Path, options: Mapping[str, Any], done: list[str]) -> str:
    """Inspect and sum up the reports, and compare them with themselves; return what is wrong, or the empty string.

    `folder`: for pages, made here. `options`: of a translation; those that do not choose a trace hold here as well.
    """
    folder.mkdir()
    own = {name: value for name, value in options.items() if name in _OF_JOBS}
    for look in (_inspect, _summarize, _compare):
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
    summary = nsys2prv_ng.summarize(reports, **{**options, "html": page})
    text = json.dumps(summary.to_dict(), allow_nan=False)
    if nsys2prv_ng.JobSummary.from_dict(json.loads(text)) != summary:
        return "not the same after it was written and read"
    return _check_text(format_summary(summary)) or _check_page(page)


def _compare(reports: Sequence[Path], folder: Path, options: Mapping[str, Any]) -> str:
    import nsys2prv_ng
    from nsys2prv_ng.comparison.text import format_comparison

    page = folder / "comparison.html"
    comparison = nsys2prv_ng.compare([reports, reports], **{**options, "html": page, "labels": ["one", "other"]})
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
