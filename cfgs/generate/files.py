"""All files that are generated: the presets and the table of them in README.md."""

from __future__ import annotations

from cfgs.generate import analysis, basics, communication, hwcounters, views
from cfgs.generate.cfg_text import format_cfg

FOLDERS = (views.VIEWS, basics.BASICS, analysis.ANALYSIS, communication.COMMUNICATION, hwcounters.HWCOUNTERS)
PRESETS = [preset for folder in FOLDERS for preset in folder.presets]

README = """\
# Presets for Paraver

Load a trace in wxParaver, then a preset with File > Load Configuration; begin with `views/cuda_activities`. Each
works with any trace, and shows an empty window where the trace has none of its events. What to look at, units and
definitions are in the description at its top, which wxParaver shows when the file is chosen.

Most windows have a row for each thread, stream and GPU. To see only some, choose Select Objects in the window's menu
and enter a regular expression: `CUDA` for streams, `Metrics` for GPUs. Where a trace lacks some of a preset's
events, Paraver asks whether to go on.

{table}

Presets are generated from the declarations in `generate/`: `python -m cfgs.generate` writes them, and with `--check`
says which differ. To add one, declare it in the module of its folder, with event types from `event_types.py` and
colours from `palette.py`. Then generate, run the tests, and commit the declaration together with what was written.
"""


def make_files() -> dict[str, str]:
    """Text by path from cfgs/."""
    return {"README.md": README.format(table=_format_table())} | {preset.path: format_cfg(preset) for preset in PRESETS}


def _format_table() -> str:
    rows = [f"| {preset.folder} | `{preset.name}` | {preset.summary} |" for preset in PRESETS]
    return "\n".join(["| folder | preset | shows |", "|---|---|---|", *rows])
