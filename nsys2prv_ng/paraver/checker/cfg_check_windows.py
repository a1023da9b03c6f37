"""Checks a window as a whole: its level, scale, time and objects, and the parents of a derived window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nsys2prv_ng.paraver.checker import cfg_names as words
from nsys2prv_ng.paraver.checker.cfg_lists import Function, Parameters, Selection
from nsys2prv_ng.paraver.checker.cfg_reader import REFUSES, CfgFile, CfgWindow, parse_whole
from nsys2prv_ng.paraver.read.problems import Findings
from nsys2prv_ng.paraver.read.prv_reader import TraceHeader

_NEEDS_PARENTS = (
    "window_level", "window_object", "window_scale_relative", "window_end_time_relative",
    "window_begin_time_relative", "window_zoom_objects",
)  # fmt: skip
"""Keys for which Paraver needs the trace. A derived window gets the trace from its parents."""


def check_window(cfg: CfgFile, window: CfgWindow, header: TraceHeader, findings: Findings) -> None:
    """Check a window by itself, and together with the windows above it."""
    _check_level(window, header, findings)
    _check_limits(window, findings)
    _check_numbers(window, findings)
    if window.derived:
        _check_derived(cfg, window, findings)
    check_functions(window, findings)
    check_selections(window, get_effective_level(cfg, window), header, findings)


def get_model(level: str) -> Sequence[str]:
    """Return the levels of the model (processes or resources) of a level, coarse ones first; () if it has none."""
    return next((levels for levels in (words.PROCESS_LEVELS, words.RESOURCE_LEVELS) if level in levels), ())


def list_parents(cfg: CfgFile, window: CfgWindow) -> list[CfgWindow]:
    """Return the parents of a derived window that are above it in the file."""
    return [cfg.windows[number - 1] for number in window.parents if 0 < number < window.number]


def get_effective_level(cfg: CfgFile, window: CfgWindow) -> str:
    """Return the level at which Paraver shows a window: a derived window cannot be finer than its parents."""
    levels = cfg.effective_levels
    for next_window in cfg.windows[len(levels) : window.number]:  # parents are above the windows derived from them
        parent_levels = [levels[parent.number - 1] for parent in list_parents(cfg, next_window)]
        levels.append(_derive_level(next_window, parent_levels))
    return levels[window.number - 1]


def _derive_level(window: CfgWindow, parent_levels: Sequence[str]) -> str:
    if not window.derived:
        return window.level
    finest = max(map(_rank_level, parent_levels), default=-1)
    if finest < 0:
        return window.level
    given = _rank_level(window.level) if window.get_entry("window_level") else finest
    return words.WINDOW_LEVELS[min(given, finest)] if given >= 0 else window.level


def _rank_level(level: str) -> int:
    return words.WINDOW_LEVELS.index(level) if level in words.WINDOW_LEVELS else -1


def _check_level(window: CfgWindow, header: TraceHeader, findings: Findings) -> None:
    entry = window.get_entry("window_level")
    if entry is not None and window.level in words.RESOURCE_LEVELS and header.applications and not header.cpus:
        findings.add(entry.line, f"level {window.level} of a trace that has no resources: {REFUSES}")


def _check_limits(window: CfgWindow, findings: Findings) -> None:
    """Check each pair of keys whose first value must not be above the second."""
    for first, second, equal in (
        ("window_minimum_y", "window_maximum_y", True),
        ("window_begin_time_relative", "window_end_time_relative", False),
        ("window_begin_time_relative", "window_scale_relative", False),
        ("window_begin_time", "window_stop_time", False),
    ):
        low, high = window.get_entry(first), window.get_entry(second)
        if low is None or high is None or not (words.is_number(low.value) and words.is_number(high.value)):
            continue
        if float(low.value) > float(high.value) or (float(low.value) == float(high.value) and not equal):
            message = f"{first} {low.value} is not below {second} {high.value}: Paraver shows nothing"
            findings.add(max(low.line, high.line), message)


def _check_numbers(window: CfgWindow, findings: Findings) -> None:
    """Check the keys that number windows and rows."""
    entry = window.get_entry("window_id")
    if entry is not None and entry.value.strip() != str(window.number):
        message = f"window_id {entry.value[:20]}: Paraver does not read it, for others this is window {window.number}"
        findings.warn(entry.line, message)
    entry = window.get_entry("window_punctual_color_window")
    if entry is not None and entry.value.isdecimal() and not 0 < parse_whole(entry.value) < window.number:
        findings.add(entry.line, f"window_punctual_color_window {entry.value}: no window above this one has the number")
    entry = window.get_entry("window_zoom_objects")
    rows = entry.value.split(" ") if entry is not None else []
    are_two = len(rows) == 2 and all(row.isdecimal() for row in rows)
    if entry is not None and are_two and parse_whole(rows[0]) > parse_whole(rows[1]):
        findings.add(entry.line, f"window_zoom_objects {entry.value}: the first row is behind the last")


def _check_derived(cfg: CfgFile, window: CfgWindow, findings: Findings) -> None:
    check_operation(window, findings)
    for key in ("window_factors", "window_shifts"):
        if window.get_entry(key) is None:
            findings.add(window.line, f"a derived window without {key}")
    entry = window.get_entry("window_identifiers")
    if entry is None:
        findings.add(window.line, "a derived window without window_identifiers: Paraver crashes")
        return
    for number in window.parents:
        if not 0 < number < window.number:
            message = f"window_identifiers: there is no window {number} above window {window.number}: Paraver crashes"
            findings.add(entry.line, message)
    for other in window.entries:
        if other.key in _NEEDS_PARENTS and other.line < entry.line:
            findings.add(other.line, f"'{other.key}' stands above window_identifiers: Paraver crashes")
    _check_derived_level(cfg, window, findings)


def _check_derived_level(cfg: CfgFile, window: CfgWindow, findings: Findings) -> None:
    levels = [get_effective_level(cfg, parent) for parent in list_parents(cfg, window)]
    models = {get_model(level) for level in levels}
    line = window.get_entry("window_level") or window.get_entry("window_identifiers")
    if line is None or () in models or not levels or not get_model(window.level):
        return
    shown = get_effective_level(cfg, window)
    if len(models) > 1:
        message = f"windows of levels {' and '.join(levels)} cannot be combined: one has processes, one resources"
        findings.add(line.line, f"{message}; Paraver crashes or shows nonsense")
    elif window.get_entry("window_level") is None:
        return
    elif get_model(window.level) not in models:
        message = f"level {window.level} of a window that is derived from levels {' and '.join(levels)}"
        findings.add(line.line, f"{message}: Paraver crashes or keeps {shown}")
    elif window.level != shown:
        message = f"level {window.level} is finer than what the window is derived from"
        findings.add(line.line, f"{message}: Paraver keeps {shown}")


Selections = dict[tuple[str, tuple[int, ...]], Selection]
"""The selections of a window by level and by the larger objects that contain the chosen ones."""

_PATHS = {
    level: path[: n + 1] for path in (("appl", "task", "thread"), ("node", "cpu")) for n, level in enumerate(path)
}
"""For each level, the levels at which its rows can be hidden: itself, and the levels of the objects that contain it."""


def check_selections(window: CfgWindow, level: str, header: TraceHeader, findings: Findings) -> None:
    """Check the window_object lines of a window that Paraver shows at `level`."""
    seen: Selections = {}
    level_line = window.get_entry("window_level")
    for selection in window.selections:
        if selection.level == level and level_line is not None and level_line.line > selection.line:
            findings.add(selection.line, "window_object stands above window_level: Paraver reads it as for threads")
        if (selection.level, selection.within) in seen:
            findings.add(selection.line, f"objects of the same {selection.level} are chosen twice: the last counts")
        seen[selection.level, selection.within] = selection
        _check_marks(selection, level, findings)
        _check_size(selection, header, findings)
    if header.applications and seen and not any(_is_chosen(seen, level, row) for row in _iterate_rows(level, header)):
        findings.add(window.selections[0].line, "no object is chosen: Paraver shows no row")


def _check_marks(selection: Selection, level: str, findings: Findings) -> None:
    """Check that objects are marked by 1 and 0 at the level of the window, and by All and None at other levels."""
    known = ("0", "1") if selection.level == level else ("All", "None")
    wrong = next((mark for mark in selection.marks if mark not in known), None)
    if wrong is not None:
        consequence = REFUSES if selection.level == level else "Paraver takes it for All"
        message = f"objects of level {selection.level} in a window of level {level} are marked {' or '.join(known)}"
        findings.add(selection.line, f"{message}, not '{wrong[:20]}': {consequence}")


def _check_size(selection: Selection, header: TraceHeader, findings: Findings) -> None:
    """Check that a line marks no more objects than there are: Paraver ignores such lines, and crashes on some."""
    if not header.applications:
        return
    size = _get_size(selection, header)
    name = ".".join(str(index + 1) for index in selection.within)
    if size is None:
        findings.add(selection.line, f"{selection.level} of {name}, which the trace does not have: Paraver ignores it")
    elif len(selection.marks) > size:
        message = f"{len(selection.marks)} objects of level {selection.level}, the trace has {size} there"
        findings.add(selection.line, f"{message}: Paraver ignores the line")


def _get_size(selection: Selection, header: TraceHeader) -> int | None:
    """Return the number of objects to choose from; None if the trace lacks the object that would contain them."""
    larger: Sequence[object] = header.cpus if selection.level in words.RESOURCE_LEVELS else header.applications
    if not selection.within:
        return len(larger)
    if selection.within[0] >= len(larger):
        return None
    if selection.level == "cpu":
        return header.cpus[selection.within[0]]
    tasks = header.applications[selection.within[0]]
    if selection.level == "task":
        return len(tasks)
    return tasks[selection.within[1]][0] if selection.within[1] < len(tasks) else None


def _iterate_rows(level: str, header: TraceHeader) -> Iterable[tuple[int, ...]]:
    """Return the indices of each row of a level, preceded by the indices of the objects that contain it."""
    tasks = [
        (i, task, threads) for i, tasks in enumerate(header.applications) for task, (threads, _) in enumerate(tasks)
    ]
    rows: dict[str, Iterable[tuple[int, ...]]] = {
        "appl": ((i,) for i in range(len(header.applications))),
        "task": ((i, task) for i, task, _ in tasks),
        "thread": ((i, task, thread) for i, task, threads in tasks for thread in range(threads)),
        "node": ((node,) for node in range(len(header.cpus))),
        "cpu": ((node, cpu) for node, cpus in enumerate(header.cpus) for cpu in range(cpus)),
    }
    return rows.get(level, [()])


def _is_chosen(selections: Selections, level: str, row: tuple[int, ...]) -> bool:
    """Return whether neither a row nor an object that contains it is hidden. Objects that no line marks are shown."""
    for depth, name in enumerate(_PATHS.get(level, ())):
        selection = selections.get((name, row[:depth]))
        if selection is not None and selection.marks[row[depth] : row[depth] + 1] in (("0",), ("None",)):
            return False
    return True


_RANGES = {"Select Range": (1, 0), "Select Range [)": (1, 0), "Is In Range": (1, 0), "Is In Range [)": (1, 0)}
_RANGES["In Evt Range"] = (0, 1)
"""Functions with a range, and the indices of the parameters with its lower and upper end."""


def check_functions(window: CfgWindow, findings: Findings) -> None:
    """Check the functions of a window and their parameters."""
    for function in window.functions:
        _check_function(window, function, findings)
    for function in window.composes:
        if function.level not in words.COMPOSES_OF_LEVEL:
            findings.add(function.line, f"'{function.level}' is not a level of composes: {REFUSES}")
        else:
            _check_name(function, words.COMPOSE, findings)
    extras = [function for function in window.composes if function.level == words.EXTRA_COMPOSE]
    _check_extra_parameters(window, extras, findings)
    for parameters in window.parameters:
        if parameters.level != words.EXTRA_COMPOSE:
            _check_choice(window, parameters, findings)
        known = _get_functions(parameters.level).get(parameters.function)
        if known is not None:
            _check_parameters(parameters, known, findings)
    _check_missing(window, extras, findings)


def _get_functions(level: str) -> words.Functions:
    return words.FUNCTIONS_OF_LEVEL.get(level) or words.COMPOSES_OF_LEVEL.get(level, {})


def _check_function(window: CfgWindow, function: Function, findings: Findings) -> None:
    level = function.level
    if level in words.FUNCTIONS_OF_LEVEL:
        if window.derived and level in words.NOT_IN_DERIVED:
            findings.add(function.line, f"a derived window has no function at level {level}: Paraver never uses it")
        _check_name(function, words.FUNCTIONS_OF_LEVEL[level], findings)
    elif level in words.COMPOSES_OF_LEVEL:
        findings.add(function.line, f"{level} belongs into window_compose_functions, which Paraver takes instead")
    elif window.derived:
        findings.add(function.line, f"'{level}' in a derived window, which has no filter: {REFUSES}")
    elif level not in words.FILTERS:
        findings.add(function.line, f"'{level}' is neither a level nor a filter: Paraver ignores it")
    elif function.name not in words.FILTER_FUNCTIONS:
        names = ", ".join(words.FILTER_FUNCTIONS)
        findings.add(function.line, f"'{function.name}' is not a filter function ({names}): Paraver crashes")


def _check_name(function: Function, known: words.Functions, findings: Findings) -> None:
    if function.name in known:
        return
    consequence = "Paraver crashes when it uses it, or shows something else" if _is_known(function.name) else REFUSES
    findings.add(function.line, f"'{function.name}' is not a function of level {function.level}: {consequence}")


def _is_known(name: str) -> bool:
    """Return whether Paraver has a function or operation of this name, at any level."""
    return any(name in known for known in (words.THREAD, words.NOT_THREAD, words.CPU, words.COMPOSE, words.DERIVED))


def _check_choice(window: CfgWindow, parameters: Parameters, findings: Findings) -> None:
    """Check that parameters belong to the function that the lines above them choose; otherwise they do not count."""
    line, level, name = parameters.line, parameters.level, parameters.function
    if level not in words.FUNCTIONS_OF_LEVEL and level not in words.COMPOSES_OF_LEVEL:
        findings.add(line, f"'{level}' is not a level that has functions: {REFUSES}")
        return
    choices = [selection for selection in window.functions + window.composes if selection.level == level]
    above = [selection.name for selection in choices if selection.line < line]
    by_default = "" if window.derived and level in words.NOT_IN_DERIVED else window.get_function(level)
    chosen = above[-1] if above else by_default
    if not above and choices:
        findings.add(line, f"parameters of {level} '{name}' stand above the line that chooses it: they are lost")
    elif not chosen:
        findings.add(line, f"parameters for level {level}, at which a derived window has none: Paraver crashes")
    elif chosen != name:
        findings.warn(line, f"parameters of '{name}', but '{chosen}' is chosen at {level}: Paraver ignores them")
    earlier = [other for other in window.parameters if (other.level, other.function) == (level, name)]
    if earlier[0].line < line:
        findings.add(line, f"parameters of {level} '{name}' are given twice: Paraver takes the last")


def _check_extra_parameters(window: CfgWindow, extras: Sequence[Function], findings: Findings) -> None:
    """Check the parameters of extra composes.

    Paraver counts parameters instead of extra composes: each parameter that it reads goes to the next extra compose.
    """
    position = 0
    for parameters in window.parameters:
        if parameters.level != words.EXTRA_COMPOSE:
            continue
        line, name = parameters.line, parameters.function
        what = f"parameters of {words.EXTRA_COMPOSE} '{name}'"
        if name not in (extra.name for extra in extras if extra.line < line):
            findings.add(line, f"{what}, which is not among the composes above it")
        elif position >= len(extras) or extras[position].name != name:
            message = f"{what} are lost: extra composes that have one must come first"
            findings.add(line, f"{message}, and their parameters in the same order")
        else:
            position += len(parameters.values)
    for extra in extras:
        if extra.name in words.COMPOSE and len(words.COMPOSE[extra.name].parameters) > 1:
            message = f"{words.EXTRA_COMPOSE} '{extra.name}' has several parameters"
            findings.add(extra.line, f"{message}: Paraver gives the second to the next compose")


def _check_parameters(parameters: Parameters, known: words.SemanticFunction, findings: Findings) -> None:
    name, wanted = parameters.function, known.parameters
    if len(parameters.values) != len(wanted):
        given = len(parameters.values)
        consequence = "Paraver crashes" if given > len(wanted) else "Paraver has its own for the others"
        message = f"'{name}' has {len(wanted)} parameters, {given} are given: {consequence}"
        findings.add(parameters.line, message)
        return
    for parameter, values in zip(wanted, parameters.values, strict=True):
        if not values or (len(values) > 1 and not parameter.many):
            number = "at least one value" if parameter.many else "one value"
            findings.add(parameters.line, f"'{parameter.name}' of '{name}' needs {number}, {len(values)} are given")
            return
    if name == "Translate" and len(parameters.values[0]) % 2:
        findings.add(parameters.line, "the list of 'Translate' must be pairs of a value and what takes its place")
    if name in _RANGES:
        lower, upper = (parameters.values[index] for index in _RANGES[name])
        _check_range(parameters, lower, upper, findings)


def _check_range(parameters: Parameters, lower: Sequence[float], upper: Sequence[float], findings: Findings) -> None:
    name, line = parameters.function, parameters.line
    order = "maximum" if _RANGES[name] == (1, 0) else "minimum"
    if len(lower) != len(upper):
        findings.add(line, f"'{name}' has {len(lower)} lower and {len(upper)} upper ends: Paraver drops what is left")
    elif any(low > high for low, high in zip(lower, upper, strict=True)):
        message = f"a range of '{name}' ends before it begins (its first parameter is the {order}): nothing is in it"
        findings.add(line, message)


def _check_missing(window: CfgWindow, extras: Iterable[Function], findings: Findings) -> None:
    """Warn of functions without parameters whose defaults in Paraver are rarely meant."""
    given = {(parameters.level, parameters.function) for parameters in window.parameters}
    last = {function.level: function for function in window.functions + window.composes}
    last.pop(words.EXTRA_COMPOSE, None)
    for function in (*last.values(), *extras):
        known = _get_functions(function.level).get(function.name)
        if known is not None and not known.usable and (function.level, function.name) not in given:
            names = ", ".join(parameter.name for parameter in known.parameters)
            message = f"'{function.name}' at {function.level} is given no parameters ({names}): Paraver has its own"
            findings.warn(function.line, message)


def check_operation(window: CfgWindow, findings: Findings) -> None:
    """Check the operation that derives a window from two others."""
    entry = window.get_entry("window_operation")
    if entry is None:
        findings.add(window.line, "a derived window without window_operation: Paraver crashes")
    elif entry.value not in words.DERIVED:
        consequence = "Paraver crashes" if _is_known(entry.value) else REFUSES
        findings.add(entry.line, f"'{entry.value[:40]}' is not an operation of derived windows: {consequence}")
