"""Prints what makes a trace small enough for Paraver, with the commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nsys2prv_ng import source_names
from nsys2prv_ng.cli.paste import join_command, quote_path, quote_reports, spell_options
from nsys2prv_ng.options.calls import JobOptions, TranslateOptions
from nsys2prv_ng.paraver.load_cost import WXPARAVER_LIMIT, LoadCost
from nsys2prv_ng.paraver.remedies import WXPARAVER_ASKS, Remedy, find_remedies
from nsys2prv_ng.text.formatting import format_window

if TYPE_CHECKING:
    from nsys2prv_ng.translation.result import TranslationResult

_NOT_REPEATED = ("force", "stats", "align_report", "summary", "paraver_memory")
"""Options that a call for another trace does not repeat."""


class Given(NamedTuple):
    """The call that a remedy changes. `sources`: sources with events. `is_written`: whether the trace can be cut."""

    reports: Sequence[Path]
    trace: Path
    options: TranslateOptions
    sources: Sequence[str]
    is_written: bool


def print_result(result: TranslationResult, given: Given, *, verbose: bool = False) -> None:
    """Print what was translated, and what helps if Paraver cannot load it. Without sources, no remedy chooses others.

    Merged shards have none: their sources were chosen when they were read.
    """
    print(result.text(verbose=verbose))
    if result.is_wide and given.options.time is None:
        print("--time gpu shows the time in which the GPUs work")
    loads = {source.name: source.load for source in result.sources if source.read} if given.sources else {}
    print_remedies(result.load, loads, result.duration_ns, result.bytes, given)


def print_summary(result: TranslationResult) -> None:
    """Print the summary of a job if the user asked for it."""
    if result.summary is not None:
        from nsys2prv_ng.summary.text import format_summary
        from nsys2prv_ng.text.layout import choose_style

        print(f"\n{format_summary(result.summary, style=choose_style())}")


def print_remedies(load: LoadCost, details: Mapping[str, LoadCost], duration: int, size: int, given: Given) -> None:
    """Print what helps for a trace of `size` bytes of text and `duration` ns, if the user set a limit."""
    limit = given.options.paraver_memory
    remedies = find_remedies(load, details, limit, duration)
    if limit and size > WXPARAVER_LIMIT:
        print(WXPARAVER_ASKS)
    if remedies:
        print("what helps:")
    for remedy in remedies:
        print(f"  {remedy.words}\n    {_format_command(remedy, given)}")


def _format_command(remedy: Remedy, given: Given) -> str:
    """Return the command of a remedy, ready for a shell."""
    reports, options = quote_reports(given.reports), given.options
    if remedy.window is not None:
        new, window = _quote_other(given.trace, "window"), ["--time", format_window(*remedy.window)]
        if given.is_written:
            return join_command("cut", quote_path(given.trace), new, *window)
        return join_command("translate", reports, new, *window)
    if remedy.without:
        kept = tuple(source for source in given.sources if source != remedy.without)
        shortest = {source: ns for source, ns in (options.min_duration or {}).items() if source in kept}
        options = replace(options, sources=kept, min_duration=shortest or None)
        if remedy.without == source_names.GPU_METRICS:
            options = replace(options, metrics=None, metrics_changes=False)
        new = _quote_other(given.trace, f"no-{remedy.without}")
        return join_command("translate", reports, new, *spell_options(options, _NOT_REPEATED))
    shared = {field.name for field in fields(JobOptions)}
    words = spell_options(options, {field.name for field in fields(TranslateOptions)} - shared)
    return join_command("translate", reports, _quote_other(given.trace, "overview"), *words, "--overview-trace")


def _quote_other(trace: Path, what: str) -> str:
    """Return the name of another trace beside this one, for a shell."""
    ending = ".prv.gz" if trace.name.endswith(".gz") else ".prv"
    return quote_path(trace.with_name(f"{trace.name.removesuffix('.gz').removesuffix('.prv')}-{what}{ending}"))
