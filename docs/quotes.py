"""Quotes of the program's output in the pages: python docs/quotes.py renews them, `--check` only names wrong pages.

A page quotes a command by a comment before a block of code, `<!-- prints: nsys2prv-ng ... -->`. The comment may choose
paragraphs of the output, by number from 1, and the number of first lines of each, or with a minus sign of last lines:
`<!-- prints: nsys2prv-ng ... | 1,3-4 | 5 -->`. In place of numbers, words choose the only paragraph that has them:
`<!-- prints: nsys2prv-ng ... | Efficiencies in -->`. Tables come and go: numbers are for the first lines, which stay.

A page quotes a file of the repository by `<!-- file: PATH -->` before its block.

Commands find the reports in `samples/`, and those of the exercises in `exercises/`, unpacked.
"""

from __future__ import annotations

import functools
import re
import sys
import tempfile
from pathlib import Path

from exercises import ROOT, run_command

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_QUOTE = re.compile(
    r"(?<=<!-- prints: )([^|\n]+?)(?: \| ([\d,-]+|[A-Z][^|\n]+?))?(?: \| (-?\d+))?( -->\n```\n)(.*?)(?=```\n)",
    re.DOTALL,
)
"""Command, paragraphs, number of lines, the text between these and the block, the block."""
_FILE = re.compile(r"(<!-- file: (\S+) -->\n```\w*\n)(.*?)(?=```\n)", re.DOTALL)
_SECONDS = re.compile(r"in \d+\.\d s\b")


def fill_page(text: str) -> str:
    """Return a page with the output of the program, and files, as they are now."""
    text = _FILE.sub(lambda match: match[1] + (ROOT / match[2]).read_text(encoding="utf-8"), text)
    return _QUOTE.sub(_renew_quote, text)


def mask_times(text: str) -> str:
    """Return a text with N in place of the seconds that the program took."""
    return _SECONDS.sub("in N s", text)


def _renew_quote(match: re.Match[str]) -> str:
    """Return a quote with the output of its command as it is now."""
    command, paragraphs, lines, between, _ = match.groups()
    output = _run(command)
    if paragraphs:
        parts = output.rstrip("\n").split("\n\n")
        limits = _choose_lines(int(lines or 0))
        chosen = [part.split("\n")[limits] for part in _choose_paragraphs(parts, paragraphs)]
        output = "\n\n".join("\n".join(part) for part in chosen) + "\n"
    return match[0][: match.start(4) - match.start()] + between + output


def _choose_paragraphs(parts: list[str], chosen: str) -> list[str]:
    """Return the paragraphs of these numbers, or the only one with these words; an error if there is not one."""
    if chosen[0].isdigit():
        return [parts[number - 1] for number in _parse_numbers(chosen)]
    found = [part for part in parts if chosen in part]
    if len(found) != 1:
        raise ValueError(f"{len(found)} paragraphs have {chosen!r}")
    return found


def _choose_lines(count: int) -> slice:
    """Return the slice of the first lines, of the last ones (below 0), or of all (0)."""
    return slice(count, None) if count < 0 else slice(count or None)


def _parse_numbers(text: str) -> list[int]:
    """Return the numbers of a list such as 1,3-4."""
    limits = [part.split("-") for part in text.split(",")]
    return [number for limit in limits for number in range(int(limit[0]), int(limit[-1]) + 1)]


@functools.cache
def _run(command: str) -> str:
    """Run a command in a folder of its own; return its standard output."""
    with tempfile.TemporaryDirectory() as folder:
        return run_command(command, Path(folder))


def main(arguments: list[str]) -> int:
    """Renew the quotes of all pages, or check them; return the exit code."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    differ = 0
    for page in PAGES:
        text = page.read_text()
        filled = fill_page(text)
        if mask_times(filled) != mask_times(text):
            print(f"{'differs' if arguments else 'wrote'}: {page.relative_to(ROOT)}")
            differ += 1
            if not arguments:
                page.write_text(filled)
    return 1 if arguments and differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
