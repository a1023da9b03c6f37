"""What goes wrong, in a user's words. The command line prints these without a traceback."""

from __future__ import annotations

import re

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def escape_unprintable(text: str) -> str:
    """Text of reports and names of files on one line, without what a terminal obeys or no encoding has."""
    return _UNPRINTABLE.sub("?", text)


class TranslationError(Exception):
    """The input or the output is at fault: one line that names file, table and remedy. Exit code 1."""

    exit_code = 1

    def __str__(self) -> str:
        return escape_unprintable(super().__str__())


class ReportError(TranslationError):
    """A report is at fault, and not the machine or the command: the other reports of a job still make a trace."""


class UsageError(TranslationError):
    """The command was not meant the way it was typed. Exit code 2."""

    exit_code = 2
