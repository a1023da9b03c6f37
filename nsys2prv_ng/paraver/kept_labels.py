"""Reads the labels of another trace. A new trace keeps their numbers, so that one histogram can compare both."""

from __future__ import annotations

from pathlib import Path

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.labels import MAX_TYPE, KeptLabels
from nsys2prv_ng.paraver.read.pcf_reader import read_pcf
from nsys2prv_ng.paraver.read.problems import Findings


def read_kept_labels(path: Path) -> KeptLabels:
    """Return types and values of a .pcf by their labels. Raises TranslationError if the file is not a .pcf."""
    try:
        config = read_pcf(path, Findings(path))
    except OSError as error:
        raise TranslationError(f"{path}: cannot be read ({error.strerror}); name the .pcf of another trace") from None
    if not config.types:
        raise TranslationError(f"{path}: declares no event types; name the .pcf of another trace")
    types = {declared.label: number for number, declared in config.types.items()}
    values = {
        number: {label: value for value, label in declared.values.items() if 0 < value <= MAX_TYPE}
        for number, declared in config.types.items()
        if declared.values
    }
    return KeptLabels(types, values)
