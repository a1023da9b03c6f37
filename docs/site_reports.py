"""Puts the HTML reports of the exercises into the site, as the commands of the guides write them: a hook of MkDocs."""

from __future__ import annotations

import functools
from pathlib import Path
from tempfile import TemporaryDirectory

from exercises import find_html_commands, run_command
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add reports/NAME.html for each command with `--html NAME.html`."""
    for name, command in find_html_commands().items():
        files.append(File.generated(config, f"reports/{name}", content=_make_report(command, name)))
    return files


@functools.cache  # `mkdocs serve` builds the site after each change of a page
def _make_report(command: str, name: str) -> bytes:
    """Return the file that a command writes."""
    with TemporaryDirectory() as folder:
        run_command(command, Path(folder))
        return Path(folder, name).read_bytes()
