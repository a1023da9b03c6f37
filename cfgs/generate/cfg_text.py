"""Writes presets as the text of .cfg files.

Paraver reads the file line by line, `key value`. It ignores unknown keys, and gives up a window at a value that it
cannot read. Windows are numbered from 1, in the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cfgs.generate.paraver_cfg import AS_IS, NODE, TASK, Derived, Events, Histogram, Preset, View, Window

_RULE = "#" * 80
_WIDTH = 1000
_LOW = {TASK: 240, NODE: 200}
"""Height (pixels) of windows at levels with few rows."""


def format_cfg(preset: Preset) -> str:
    """Return the text of the whole file."""
    views = preset.views
    shown = list(preset.shown)
    lines = [
        "#ParaverCFG",
        "ConfigFile.Version: 3.4",
        f"ConfigFile.NumWindows: {len(views)}",
        "ConfigFile.BeginDescription",
        preset.summary,
        *preset.description.strip().splitlines(),
        "ConfigFile.EndDescription",
        "",
    ]
    for view in views:
        lines += [_RULE, f"< NEW DISPLAYING WINDOW {view.name} >", _RULE]
        lines += _format_view(view, views, shown)
        lines.append("")
    for histogram in preset.histograms:
        lines += _format_histogram(histogram, views, shown)
        lines.append("")
    return "\n".join(lines)


# ---- windows ---------------------------------------------------------------------------------------------------------


def _format_view(view: View, views: list[View], shown: list[View | Histogram]) -> Iterator[str]:
    is_shown = view in shown
    yield f"window_name {view.name}"
    yield f"window_type {'composed' if isinstance(view, Derived) else 'single'}"
    yield f"window_id {views.index(view) + 1}"
    if isinstance(view, Derived):
        yield "window_factors 1 1"
        yield "window_shifts 0 0"
        yield f"window_operation {view.operation}"
        yield f"window_identifiers {views.index(view.first) + 1} {views.index(view.second) + 1}"
    x, y, height = _place(view, shown)
    yield f"window_position_x {x}"
    yield f"window_position_y {y}"
    yield f"window_width {_WIDTH}"
    yield f"window_height {_LOW.get(view.level, height)}"
    yield f"window_comm_lines_enabled {_format_flag(view.messages is not None)}"
    yield "window_flags_enabled false"
    yield from _format_look(view)
    if isinstance(view, Window):
        yield "window_logical_filtered true"
        yield "window_physical_filtered false"
        yield "window_comm_fromto true"
        yield "window_comm_tagsize true"
        yield "window_comm_typeval true"
    yield f"window_units {view.units}"
    yield f"window_level {view.level}"
    yield "window_begin_time_relative 0.0"
    yield "window_end_time_relative 1.0"
    yield "window_object appl { 1, { All } }"
    yield f"window_open {_format_flag(is_shown)}"
    yield f"window_drawmode {view.look.draw}"
    yield f"window_drawmode_rows {view.look.draw}"
    yield "window_pixel_size 1"
    yield from _format_functions(view)
    if isinstance(view, Window):
        yield from _format_filters(view)
    if is_shown and len(shown) > 1:
        yield "window_synchronize 1"


def _format_look(view: View) -> Iterator[str]:
    look = view.look
    yield "window_noncolor_mode true"
    yield f"window_color_mode {'window_in_code_mode' if look.colours else 'window_in_null_gradient_mode'}"
    if look.colours:
        palette = ",".join(f"{{{value}:{r},{g},{b}}}" for value, (r, g, b) in sorted(look.colours.items()))
        yield "window_custom_color_enabled true"
        yield f"window_custom_color_palette {palette}"
    else:
        yield f"window_gradient_function gradient_function_{'log' if look.logarithmic else 'linear'}"
    yield "window_semantic_scale_min_at_zero true"
    yield f"window_maximum_y {_format_number(1 if look.maximum is None else look.maximum)}"
    yield "window_minimum_y 0"
    yield f"window_compute_y_max {_format_flag(look.maximum is None)}"


def _format_functions(view: View) -> Iterator[str]:
    used = [(level, view.above) for level in ("appl", "task", "node", "system", "workload")]
    functions = {f"{{{level}, {combine.name}}}": None for level, combine in used}
    used.append(("compose_thread", view.compose))
    if isinstance(view, Window):
        functions |= {"{cpu, Active Thd}": None, f"{{thread, {view.thread.name}}}": None}
        # Paraver gives up a file if the trace has none of its types, unless a window of the file selects `All`. If a
        # filter has two functions, the last one counts, so `All` has no other effect: the window is just empty.
        selected = [f"{{evt_type, {name}}}" for name in dict.fromkeys(("All", view.events.function))]
        functions |= dict.fromkeys(["{from_obj, All}", "{to_obj, All}", "{size_msg, All}", "{bw_msg, All}"])
        functions |= {f"{{tag_msg, {view.messages.function if view.messages else 'All'}}}": None}
        functions |= dict.fromkeys([*selected, "{evt_value, All}"])
        used.append(("thread", view.thread))
    yield f"window_selected_functions {{ {len(functions)}, {{ {', '.join(functions)} }} }}"

    # Paraver applies topcompose2 first, then topcompose1, then the extra composes.
    inner, outer, *extra = [*view.top, *[AS_IS] * (2 - len(view.top))]
    tops = [("topcompose2", inner), ("topcompose1", outer), *(("extratopcompose1", further) for further in extra)]
    composed = [f"{{{level}, {applied.name}}}" for level, applied in (("compose_thread", view.compose), *tops)]
    yield f"window_compose_functions {{ {len(composed)}, {{ {', '.join(composed)} }} }}"
    for level, applied in (*used, *tops):
        if applied.parameters:
            parameters = ", ".join(f"{len(p)} {' '.join(map(_format_number, p))}" for p in applied.parameters)
            yield f"window_semantic_module {level} {applied.name} {{ {len(applied.parameters)}, {{ {parameters} }} }}"


def _format_filters(window: Window) -> Iterator[str]:
    if window.messages:
        yield f"window_filter_module tag_msg {_format_list(window.messages.tags)}"
    types: Events = window.events
    if types.types:
        yield f"window_filter_module evt_type {_format_list(number for number, _ in types.types)}"
        labels = [f'"{label}"' for _, label in types.types]
        yield f"window_filter_module evt_type_label {_format_list(labels)}"


# ---- histograms ------------------------------------------------------------------------------------------------------


def _format_histogram(histogram: Histogram, views: list[View], shown: list[View | Histogram]) -> Iterator[str]:
    control = views.index(histogram.control) + 1
    x, y, height = _place(histogram, shown)
    yield "< NEW ANALYZER2D >"
    yield f"Analyzer2D.Name: {histogram.name}"
    yield f"Analyzer2D.X: {x}"
    yield f"Analyzer2D.Y: {y}"
    yield f"Analyzer2D.Width: {_WIDTH}"
    yield f"Analyzer2D.Height: {height}"
    yield f"Analyzer2D.ControlWindow: {control}"
    yield f"Analyzer2D.DataWindow: {views.index(histogram.data) + 1 if histogram.data else control}"
    yield "Analyzer2D.Accumulator: Semantic"
    yield f"Analyzer2D.Statistic: {histogram.statistic}"
    yield "Analyzer2D.CalculateAll: True"
    yield "Analyzer2D.HideCols: True"
    yield "Analyzer2D.HorizVert: Horizontal"
    yield "Analyzer2D.Color: True"
    yield "Analyzer2D.SemanticColor: False"
    yield "Analyzer2D.Zoom: Disabled"
    yield "Analyzer2D.SortCols: False"
    yield "Analyzer2D.SortCriteria: Average"
    yield "Analyzer2D.AnalysisLimits: Allwindow"
    yield f"Analyzer2D.ComputeYScale: {histogram.maximum is None}"
    yield f"Analyzer2D.Minimum: {_format_number(histogram.minimum)}"
    yield f"Analyzer2D.Maximum: {_format_number(1 if histogram.maximum is None else histogram.maximum)}"
    yield f"Analyzer2D.Delta: {_format_number(histogram.delta)}"
    yield "Analyzer2D.UseFixedDelta: True"
    yield "Analyzer2D.ComputeGradient: True"
    yield "Analyzer2D.Objects: All"
    yield "Analyzer2D.DrawModeObjects: draw_maximum"
    yield "Analyzer2D.DrawModeColumns: draw_maximum"
    yield "Analyzer2D.PixelSize: 1"
    yield "Analyzer2D.ColorMode: window_in_null_gradient_mode"
    if histogram.only_totals:
        yield "Analyzer2D.ShowOnlyTotals: True"
    # "Short" labels lose the text in brackets.
    yield "Analyzer2D.ShortHeaderLabels: False"
    if len(shown) > 1:
        yield "Analyzer2D.Synchronize: 1"


def _place(this: View | Histogram, shown: list[View | Histogram]) -> tuple[int, int, int]:
    """Return x, y and height: up to three windows above each other on a screen of 1080 lines, a fourth beside them."""
    column, row = divmod(shown.index(this), 3) if this in shown else (0, 0)
    height = {1: 600, 2: 380}.get(len(shown), 260)
    return 40 + 60 * column, 40 + (height + 70) * row + 40 * column, height


# ---- values ----------------------------------------------------------------------------------------------------------


def _format_flag(value: bool) -> str:
    return "true" if value else "false"


def _format_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _format_list(values: Iterable[object]) -> str:
    texts = [str(value) for value in values]
    return f"{len(texts)} {' '.join(texts)}"
