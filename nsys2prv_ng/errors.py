"""Errors in the user's words. The command line prints them without a traceback."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

_KEPT = frozenset("\u200c\u200d\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))))
"""The joiners, which many scripts and emojis need, and blanks (category Zs)."""
_UNSEEN = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, (*range(0xFE00, 0xFE0E), *range(0xE0100, 0xE01F0))))
)
"""What Unicode has as Default_Ignorable_Code_Point in other categories than C, and the blank of Braille. The last two
variation selectors are none of these, because emojis need them."""


def escape_unprintable(text: str, show: Callable[[str], str] = lambda _: "?") -> str:
    """Return a text in which question marks, or what `show` returns for each, replace characters that are not seen.

    These are all of the categories C (controls, formats but for joiners, surrogates, private and unassigned ones), and
    separators of lines and paragraphs, and fillers that are letters or marks. Some move the cursor or reverse the order
    of what follows, so that a reader sees another text.
    """
    if text.isprintable() and _UNSEEN.isdisjoint(text):
        return text
    return "".join(
        show(each) if each in _UNSEEN or not (each.isprintable() or each in _KEPT) else each for each in text
    )


def find_nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Return the known name that somebody may have meant; "" if none is alike. `likeness`: from 0 to 1 (the same)."""
    from difflib import get_close_matches  # only errors need it

    return next(iter(get_close_matches(name.lower(), list(known), 1, likeness)), "")


def suggest(
    names: Iterable[str], known: Collection[str], guess: Callable[[str, Iterable[str]], str] = find_nearest
) -> str:
    """Return the remedy for unknown names: the nearest known one of each, or else all that are known."""
    guesses = [guess(name, known) for name in names]
    return f"did you mean {', '.join(guesses)}?" if guesses and all(guesses) else f"known are {', '.join(known)}"


class TranslationError(Exception):
    """The input or the output is at fault: one line that names file, table and remedy. Exit code 1.

    `see` lists the keywords of the Python calls that the remedy needs; the command line prints its options instead.
    """

    exit_code = 1

    def __init__(self, message: str, *, see: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.see = see

    def __str__(self) -> str:
        return escape_unprintable(self.message + refer_to(self.see))


def refer_to(names: Iterable[str]) -> str:
    """Return the end of an error message: the keywords or options that its remedy needs."""
    listed = ", ".join(names)
    return f" (see {listed})" if listed else ""


class ReportError(TranslationError):
    """A report is at fault, not the machine or the command. The other reports of a job still make a trace."""


class UsageError(TranslationError):
    """The user asked for something that the program cannot do. Exit code 2.

    If the message is about a single keyword of a Python call, `parameter` is its name and `value` its value; the
    command line prints its option and the typed text instead.
    """

    exit_code = 2

    def __init__(self, message: str, *, parameter: str = "", value: object = None, see: tuple[str, ...] = ()) -> None:
        super().__init__(message, see=see)
        self.parameter = parameter
        self.value = value

    def __str__(self) -> str:
        if not self.parameter:
            return super().__str__()
        given = "" if self.value is None else f"={self.value!r}"
        return escape_unprintable(f"{self.parameter}{given}: {self.message}")
