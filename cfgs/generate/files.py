"""Makes all generated files: the presets, the filters, README.md with their tables, and workspaces.xml."""

from __future__ import annotations

from cfgs.generate import analysis, basics, communication, critical_path, hwcounters, model, ranges, slow, views, waits
from cfgs.generate.cfg_text import format_cfg
from cfgs.generate.filters import FILTERS
from cfgs.generate.workspaces import format_workspaces

FOLDERS = (
    views.VIEWS,
    basics.BASICS,
    analysis.ANALYSIS,
    ranges.RANGES,
    slow.SLOW,
    communication.COMMUNICATION,
    waits.WAITS,
    critical_path.CRITICAL_PATH,
    model.MODEL,
    hwcounters.HWCOUNTERS,
)
PRESETS = [preset for folder in FOLDERS for preset in folder.presets]

README = """\
# Presets for Paraver

Presets are cfgs in Paraver's terms. Open a trace in wxParaver, then open a preset with File > Load Configuration. Start
with `views/cuda_activities`. Every preset works with any trace; its window is empty if the trace has none of its
events. If only some events are missing, Paraver asks whether to continue. The description at the top of the file
explains the windows, with units and definitions. wxParaver shows it when you select the file.

Most windows have one row per thread, stream and GPU. To see only some rows, choose Select Objects in the window's menu
and enter a regular expression: `CUDA` for streams, `Metrics` for GPUs, `^r2 ` for the host threads of rank 2. Most
histograms of GPU activity have one row per rank; `paramedir` prints the last histogram of a preset.

## Menus of wxParaver

`workspaces.xml` lists the presets by question, in the menu Hints of wxParaver. A submenu appears if the trace contains
its kind of event; a preset is grey if the trace has none of its events. `nsys2prv-ng cfgs --install DIR` writes the
file with the paths of DIR. Run it on the machine with wxParaver, close wxParaver, and copy the file to
`~/.paraver/workspaces.xml`. That file also contains your own workspaces: if you have any (Preferences > Workspaces),
add the `item` elements of both lists to it instead, and correct the two counts.

## Smaller traces

The files in `filters/` reduce a trace that is too large, without loading it. Paraver's `paramedir` applies them,
`paramedir -f -o SMALL.prv TRACE.prv filters/overview.xml`, and wxParaver's dialog Cut & Filter loads them.

{filters}

## All presets

{table}

`python -m cfgs.generate` writes the presets, `workspaces.xml` and this page from the declarations in `generate/`; with
`--check` it lists the files that differ. [Recipes](../docs/development/recipes.md#a-preset) say how to declare one.
"""


def make_files() -> dict[str, str]:
    """Return the text of each file, by path from cfgs/."""
    others = {
        "README.md": README.format(filters=_format_filters(), table=_format_table()),
        "workspaces.xml": format_workspaces(PRESETS),
    }
    others |= {extra.path: extra.format() for extra in FILTERS}
    return others | {preset.path: format_cfg(preset) for preset in PRESETS}


def _format_filters() -> str:
    rows = [f"| `{extra.path}` | `{extra.options}` | {extra.summary} |" for extra in FILTERS]
    return "\n".join(["| file | option | the new trace has |", "|---|---|---|", *rows])


def _format_table() -> str:
    rows = [f"| {preset.folder} | `{preset.name}` | {preset.summary} |" for preset in PRESETS]
    return "\n".join(["| folder | preset | shows |", "|---|---|---|", *rows])
