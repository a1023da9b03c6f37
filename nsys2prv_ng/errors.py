"""What goes wrong, in a user's words. The command line prints these without a traceback."""


class TranslationError(Exception):
    """The input or the output is at fault: one line that names file, table and remedy. Exit code 1."""

    exit_code = 1


class ReportError(TranslationError):
    """A report is at fault, and not the machine or the command: the other reports of a job still make a trace."""


class UsageError(TranslationError):
    """The command was not meant the way it was typed. Exit code 2."""

    exit_code = 2
