"""All generated files: the presets, and README.md with their table."""

from __future__ import annotations

from cfgs.generate import analysis, basics, communication, hwcounters, views, waits
from cfgs.generate.cfg_text import format_cfg

FOLDERS = (
    views.VIEWS,
    basics.BASICS,
    analysis.ANALYSIS,
    communication.COMMUNICATION,
    waits.WAITS,
    hwcounters.HWCOUNTERS,
)
PRESETS = [preset for folder in FOLDERS for preset in folder.presets]

README = """\
# Presets for Paraver

Open a trace in wxParaver, then open a preset with File > Load Configuration. Start with `views/cuda_activities`. Every
preset works with any trace; its window is empty if the trace has none of its events. If it lacks only some,
Paraver asks whether to continue. The description at the top of the file explains what the windows show, with units and
definitions. wxParaver shows it when you select the file.

Most windows have one row per thread, stream and GPU. To see only some rows, choose Select Objects in the window's menu
and enter a regular expression: `CUDA` for streams, `Metrics` for GPUs.

{table}

`python -m cfgs.generate` writes the presets and this page from the declarations in `generate/`; with `--check` it lists
the files that differ. [Add a preset](../docs/development/adding-a-preset.md) describes how to declare one.
"""


def make_files() -> dict[str, str]:
    """Return the text of each file, by path from cfgs/."""
    return {"README.md": README.format(table=_format_table())} | {preset.path: format_cfg(preset) for preset in PRESETS}


def _format_table() -> str:
    rows = [f"| {preset.folder} | `{preset.name}` | {preset.summary} |" for preset in PRESETS]
    return "\n".join(["| folder | preset | shows |", "|---|---|---|", *rows])
