"""Checks the functions of a window: the choice at each level, and the parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nsys2prv_ng.paraver.checker.cfg_lists import Function, Parameters
from nsys2prv_ng.paraver.checker.cfg_names import (
    COMPOSE,
    COMPOSES_OF_LEVEL,
    CPU,
    DERIVED,
    EXTRA_COMPOSE,
    FILTER_FUNCTIONS,
    FILTERS,
    FUNCTIONS_OF_LEVEL,
    NOT_IN_DERIVED,
    NOT_THREAD,
    THREAD,
    Functions,
    SemanticFunction,
)
from nsys2prv_ng.paraver.checker.cfg_reader import REFUSES, CfgWindow
from nsys2prv_ng.paraver.read.problems import Findings

_RANGES = {"Select Range": (1, 0), "Select Range [)": (1, 0), "Is In Range": (1, 0), "Is In Range [)": (1, 0)}
_RANGES["In Evt Range"] = (0, 1)
"""Functions with a range, and the indices of the parameters with its lower and upper end."""


def check_functions(window: CfgWindow, findings: Findings) -> None:
    """Check the functions of a window and their parameters."""
    for function in window.functions:
        _check_function(window, function, findings)
    for function in window.composes:
        if function.level not in COMPOSES_OF_LEVEL:
            findings.add(function.line, f"'{function.level}' is not a level of composes: {REFUSES}")
        else:
            _check_name(function, COMPOSE, findings)
    extras = [function for function in window.composes if function.level == EXTRA_COMPOSE]
    _check_extra_parameters(window, extras, findings)
    for parameters in window.parameters:
        if parameters.level != EXTRA_COMPOSE:
            _check_choice(window, parameters, findings)
        known = _get_functions(parameters.level).get(parameters.function)
        if known is not None:
            _check_parameters(parameters, known, findings)
    _check_missing(window, extras, findings)


def _get_functions(level: str) -> Functions:
    return FUNCTIONS_OF_LEVEL.get(level) or COMPOSES_OF_LEVEL.get(level, {})


def _check_function(window: CfgWindow, function: Function, findings: Findings) -> None:
    level = function.level
    if level in FUNCTIONS_OF_LEVEL:
        if window.derived and level in NOT_IN_DERIVED:
            findings.add(function.line, f"a derived window has no function at level {level}: Paraver never uses it")
        _check_name(function, FUNCTIONS_OF_LEVEL[level], findings)
    elif level in COMPOSES_OF_LEVEL:
        findings.add(function.line, f"{level} belongs into window_compose_functions, which Paraver takes instead")
    elif window.derived:
        findings.add(function.line, f"'{level}' in a derived window, which has no filter: {REFUSES}")
    elif level not in FILTERS:
        findings.add(function.line, f"'{level}' is neither a level nor a filter: Paraver ignores it")
    elif function.name not in FILTER_FUNCTIONS:
        names = ", ".join(FILTER_FUNCTIONS)
        findings.add(function.line, f"'{function.name}' is not a filter function ({names}): Paraver crashes")


def _check_name(function: Function, known: Functions, findings: Findings) -> None:
    if function.name in known:
        return
    elsewhere = any(function.name in functions for functions in (THREAD, NOT_THREAD, CPU, COMPOSE, DERIVED))
    consequence = "Paraver crashes when it uses it, or shows something else" if elsewhere else REFUSES
    findings.add(function.line, f"'{function.name}' is not a function of level {function.level}: {consequence}")


def _check_choice(window: CfgWindow, parameters: Parameters, findings: Findings) -> None:
    """Check that parameters belong to the function that the lines above them choose; otherwise they do not count."""
    line, level, name = parameters.line, parameters.level, parameters.function
    if level not in FUNCTIONS_OF_LEVEL and level not in COMPOSES_OF_LEVEL:
        findings.add(line, f"'{level}' is not a level that has functions: {REFUSES}")
        return
    choices = [selection for selection in window.functions + window.composes if selection.level == level]
    above = [selection.name for selection in choices if selection.line < line]
    chosen = above[-1] if above else "" if window.derived and level in NOT_IN_DERIVED else window.get_function(level)
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
        if parameters.level != EXTRA_COMPOSE:
            continue
        line, name = parameters.line, parameters.function
        if name not in (extra.name for extra in extras if extra.line < line):
            findings.add(line, f"parameters of {EXTRA_COMPOSE} '{name}', which is not among the composes above it")
        elif position >= len(extras) or extras[position].name != name:
            message = f"parameters of {EXTRA_COMPOSE} '{name}' are lost: extra composes that have one must come first"
            findings.add(line, f"{message}, and their parameters in the same order")
        else:
            position += len(parameters.values)
    for extra in extras:
        if extra.name in COMPOSE and len(COMPOSE[extra.name].parameters) > 1:
            message = (
                f"{EXTRA_COMPOSE} '{extra.name}' has several parameters: Paraver gives the second to the next compose"
            )
            findings.add(extra.line, message)


def _check_parameters(parameters: Parameters, known: SemanticFunction, findings: Findings) -> None:
    name, wanted = parameters.function, known.parameters
    if len(parameters.values) != len(wanted):
        consequence = (
            "Paraver crashes" if len(parameters.values) > len(wanted) else "Paraver has its own for the others"
        )
        message = f"'{name}' has {len(wanted)} parameters, {len(parameters.values)} are given: {consequence}"
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
    last.pop(EXTRA_COMPOSE, None)
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
    elif entry.value not in DERIVED:
        known = any(entry.value in functions for functions in (THREAD, NOT_THREAD, CPU, COMPOSE))
        consequence = "Paraver crashes" if known else REFUSES
        findings.add(entry.line, f"'{entry.value[:40]}' is not an operation of derived windows: {consequence}")
