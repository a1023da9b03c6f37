"""Prints results: JSON, and what became of a translation, with what makes its trace small enough for Paraver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nsys2prv_ng.cli.options import find_flag
from nsys2prv_ng.options.calls import JobOptions, TranslateOptions
from nsys2prv_ng.options.kinds import GPU_TIME
from nsys2prv_ng.paraver.load_cost import WXPARAVER_ASKS, WXPARAVER_LIMIT, LoadCost, find_remedies

if TYPE_CHECKING:
    from nsys2prv_ng.translation.result import TranslationResult


def print_json(result: Any) -> None:
    """Print the numbers of a result for programs."""
    import json

    print(json.dumps(result.to_dict(), indent=2))


def print_result(
    result: TranslationResult, options: TranslateOptions, details: Mapping[str, LoadCost], *, verbose: bool = False
) -> None:
    """Print what was translated, and what helps if Paraver cannot load it. An overview has its limited size anyway.

    `details`: the records of each source that can be selected. There are none for shards, whose sources were chosen
    when they were read.
    """
    print(result.text(verbose=verbose))
    if result.is_wide and options.time is None:
        print("--time gpu shows the time in which the GPUs work")
    if result.overview is None:
        limit, begin = options.paraver_memory, find_begin(options)
        print_remedies(result.load, details, limit, size=result.bytes, duration=result.duration_ns, begin=begin)


def print_summary(result: TranslationResult) -> None:
    """Print the summary of a job if the user asked for it."""
    if result.summary is not None:
        from nsys2prv_ng.summary.text import format_summary
        from nsys2prv_ng.text.layout import choose_style

        print(f"\n{format_summary(result.summary, style=choose_style())}")


def print_remedies(
    load: LoadCost, details: Mapping[str, LoadCost], limit: int, *, size: int, duration: int, begin: int | None = 0
) -> None:
    """Print the options that make a trace small enough, if the user set a limit.

    `size`: of the text (bytes). The others are as `find_remedies` takes them.
    """
    if limit and size > WXPARAVER_LIMIT:
        print(WXPARAVER_ASKS)
    remedies = find_remedies(load, details, limit, duration, begin)
    if remedies:
        print("what helps, added to translate:")
    for words, option, value in remedies:
        print(f"  {words}")
        if option:
            print(f"    {find_flag(option)} {value}".rstrip())


def find_begin(options: JobOptions) -> int | None:
    """Return where a trace begins, as the option `time` counts (ns); None if events decide that."""
    if options.time == GPU_TIME or options.steps or options.skip_warmup or options.nvtx_range:
        return None
    return 0 if options.time is None else options.time[0] or 0
