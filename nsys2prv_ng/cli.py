"""The command line: what the user types, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn, Optional

import typer

from nsys2prv_ng import __version__
from nsys2prv_ng.errors import TranslationError, UsageError

# Numba, pandas and pyarrow are imported where they are used, so that --help and errors of usage answer at once.

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)

COMMANDS = ("translate", "check")

_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|ms|s)")


def main() -> NoReturn:
    """Run the command line. Exit codes: 0 done, 1 the input or output is at fault, 2 usage."""
    arguments = sys.argv[1:]
    # `translate` is what runs when the first word is no command; a report named like one is reached as ./check.
    if arguments and arguments[0] not in (*COMMANDS, "--help", "--version"):
        arguments.insert(0, "translate")
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    try:
        result = app(arguments, prog_name="nsys2prv-ng", standalone_mode=False)
    except TranslationError as error:
        return _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted; nothing was written", 130)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 (whoever read the output is gone)
        return 1
    except MemoryError:
        return _fail("out of memory; translate fewer reports at once, or fewer kinds of event with --sources", 1)
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's and click's errors of usage
            return _fail(f"{error.format_message()} (see nsys2prv-ng --help)", 2)
        if os.environ.get("NSYS2PRV_NG_TRACEBACK"):
            traceback.print_exc()
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        return _fail(
            f"internal error, please report it: {what} (at {Path(where.filename).name}:{where.lineno};"
            " NSYS2PRV_NG_TRACEBACK=1 shows more)",
            1,
        )
    return result if isinstance(result, int) else 0


def _fail(message: str, code: int) -> int:
    print(f"nsys2prv-ng: error: {message}", file=sys.stderr)
    return code


def _terminate(signum: int, frame: FrameType | None) -> None:
    """End by an exception, so that temporary files are removed."""
    raise KeyboardInterrupt


def _version(wanted: bool) -> None:
    if wanted:
        print(f"nsys2prv-ng {__version__}")
        raise typer.Exit


@app.callback(epilog="A first word that is no command is the first report: nsys2prv-ng REPORT... OUT.prv translates.")
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Translate NVIDIA Nsight Systems reports of every rank of a job into one Paraver trace."""


@app.command()
def translate(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="REPORT... OUT.prv",
            help="Reports (.nsys-rep, or exported to .sqlite) in any order, then the trace (.prv or .prv.gz).",
            show_default=False,
        ),
    ],
    sources: Annotated[
        Optional[str],  # noqa: UP045 (typer reads the annotation at run time)
        typer.Option(metavar="NAME,...", help="Kinds of event to translate.", show_default="all that the reports hold"),
    ] = None,
    align: Annotated[str, typer.Option(metavar="utc", help="How clocks are aligned: by each report's UTC.")] = "utc",
    time: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="FROM:TO",
            help="Only this time, from the start of the trace, in ns, us, ms or s: 1.5s:2s, :800ms, 2s:.",
            show_default="all",
        ),
    ] = None,
    compress: Annotated[bool, typer.Option("--gzip", help="Write OUT.prv.gz, which Paraver reads.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a trace of the same name.")] = False,
    summary: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE.json", help="Write the table of events read, written and dropped as JSON."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print the reports and their clocks as well.")
    ] = False,
) -> None:
    """Translate reports into one trace (also without the word translate)."""
    reports, output = _reports_and_output(paths, compress)
    window = _window(time) if time is not None else None
    if align != "utc":
        raise UsageError(f"--align {align}: the only way so far is utc")

    from nsys2prv_ng.progress import progress_for
    from nsys2prv_ng.sources import choose
    from nsys2prv_ng.translate import Options
    from nsys2prv_ng.translate import translate as run

    options = Options(sources=choose(sources), window=window, force=force)
    done = run(reports, output, options, progress_for(quiet=quiet))
    if summary is not None:
        _write_json(summary, done.to_dict())
    if not quiet:
        print(done.text(verbose=verbose))


@app.command()
def check(
    trace: Annotated[Path, typer.Argument(metavar="OUT.prv", help="A trace: .prv or .prv.gz.", show_default=False)],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print problems only.")] = False,
) -> None:
    """Check that a trace keeps every rule of Paraver; exit code 1 if it does not."""
    from nsys2prv_ng.paraver.check import check_trace
    from nsys2prv_ng.progress import progress_for

    size = trace.stat().st_size if trace.is_file() else 0
    with progress_for(quiet=quiet).step(f"checking {trace}", size, "B") as step:
        report = check_trace(trace, progress=step.update)
    for problem in report.problems:
        print(problem)
    if not quiet:
        for warning in report.warnings:
            print(f"warning: {warning}")
        counts = ", ".join(f"{count:,} {kind}" for kind, count in report.records.items())
        print(f"{trace}: {counts}; {report.tasks:,} tasks, {report.rows:,} rows, {report.nodes:,} nodes")
    if report.problems:
        raise TranslationError(f"{trace}: {len(report.problems)} kinds of problem")


def _reports_and_output(paths: list[Path], compress: bool) -> tuple[list[Path], Path]:
    *reports, output = paths
    if not output.name.endswith((".prv", ".prv.gz")):
        what = "is a report, and" if output.suffix in (".sqlite", ".nsys-rep", ".qdrep") else "is no name of a trace:"
        raise UsageError(f"{output}: the last argument {what} must be the trace to write, OUT.prv or OUT.prv.gz")
    if not reports:
        raise UsageError(f"no report given to translate into {output}: nsys2prv-ng REPORT... OUT.prv")
    for report in reports:
        if report.name.endswith((".prv", ".prv.gz")):
            raise UsageError(f"{report}: a trace among the reports; only the last argument names one")
    if compress and output.suffix != ".gz":
        output = output.with_name(output.name + ".gz")
    return reports, output


def _window(text: str) -> tuple[int | None, int | None]:
    """Limits in ns of FROM:TO; None where one is left out."""
    limits = text.split(":")
    if len(limits) != 2:
        raise UsageError(f"--time {text}: write FROM:TO with units, like 1.5s:2s, :800ms or 2s:")
    low, high = (_time(limit, text) if limit else None for limit in limits)
    if low is not None and high is not None and low >= high:
        raise UsageError(f"--time {text}: FROM must be before TO")
    return low, high


def _time(limit: str, text: str) -> int:
    from decimal import Decimal

    match = _TIME.fullmatch(limit.strip())
    if not match:
        raise UsageError(f"--time {text}: '{limit}' is no time with a unit (ns, us, ms, s), like 250ms")
    return int(Decimal(match[1]) * _UNITS[match[2]])


def _write_json(path: Path, content: dict[str, object]) -> None:
    try:
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise TranslationError(f"{path}: cannot write the summary: {error.strerror or error}") from None
