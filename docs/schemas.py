"""The JSON Schemas of the JSON outputs: python docs/schemas.py writes them, `--check` only compares them.

They are made of the dataclasses whose fields are the keys of the JSON: types of their annotations, descriptions of
their docstrings, units of their names.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from page_file import DOCS, write_or_check

from nsys2prv_ng.clock.alignment_table import Alignment, AlignmentNumbers
from nsys2prv_ng.comparison.model import COMPARISON_VERSION, Comparability, Finding, Pair, Scaling
from nsys2prv_ng.comparison.result import Comparison
from nsys2prv_ng.inspection.model import INSPECTION_VERSION, InspectedReport, Inspection
from nsys2prv_ng.replay.numbers import WHAT_IF_VERSION, Scenario, WhatIfNumbers
from nsys2prv_ng.report.diagnostics import Message
from nsys2prv_ng.summary.job import SUMMARY_VERSION, JobSummary
from nsys2prv_ng.summary.verdict import Verdict
from nsys2prv_ng.translation.result import RESULT_VERSION, SourceAccount, TranslationResult

FOLDER = DOCS / "reference/schemas"

OUTPUTS: Mapping[str, tuple[type, str]] = {
    "stats": (TranslationResult, "What a translation did (translate --stats, TranslationResult.to_dict)"),
    "summary": (JobSummary, "The numbers of a job (summary --json, JobSummary.to_dict, JobSummary.save)"),
    "comparison": (Comparison, "A comparison of runs (compare --json, Comparison.to_dict)"),
    "inspection": (Inspection, "What reports contain (inspect --json, Inspection.to_dict)"),
    "what-if": (WhatIfNumbers, "What changes would save (what-if --json, WhatIfNumbers.to_dict)"),
}
"""By the name of a schema: the class that makes the JSON, and its title."""

_VERSIONS = {
    TranslationResult: RESULT_VERSION,
    JobSummary: SUMMARY_VERSION,
    Comparison: COMPARISON_VERSION,
    Inspection: INSPECTION_VERSION,
    WhatIfNumbers: WHAT_IF_VERSION,
}
_PARTS = (WhatIfNumbers,)
"""Classes of outputs that are also a part of others, without a version of their own there."""
_KEYS: Mapping[type, tuple[str, ...]] = {
    TranslationResult: ("start_utc", "*", "paraver_memory", "paraver_seconds"),
    SourceAccount: ("*", "kinds"),
    JobSummary: ("start_utc", "*"),
    Scenario: (
        *("change", "predicted_step_ns", "saving_ns", "share"),
        *("limited_by", "connected", "measurable", "ranks"),
    ),
    Inspection: ("reports", "unreadable", "nodes", "sources", "totals", "estimate", "warnings"),
    InspectedReport: ("*", "begin_utc", "rows"),
    Message: ("*", "reports_lost_data"),
}
"""The keys of classes whose fields are not all keys, or not the only ones: fields and properties; `*`: all fields."""
_HINTS: Mapping[tuple[type, str], Any] = {(Inspection, "nodes"): dict[str, list[str]]}
"""What JSON has instead of the value of a field or property: here, the files of the reports."""
_RENAMED: Mapping[tuple[type, str], str] = {(Verdict, "hint"): "try"}
"""The keys of fields whose name Python reserves."""
_LATER = {each.__name__: each for each in (JobSummary, Comparability, Scaling)}
"""Classes that modules import for the checker of types only."""
_UNITS = {"ns": "ns", "us": "us", "ppm": "ppm", "seconds": "s", "bytes": "bytes"}
_TYPES: Mapping[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean", NoneType: "null"}


def make_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of an output."""
    made_of, title = OUTPUTS[name]
    definitions: dict[type, Any] = {}
    schema = _describe_comparison(definitions) if made_of is Comparison else _describe_class(made_of, definitions)
    if made_of in _PARTS:
        schema = _add_version(made_of, schema)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": _name_schema(name), "title": title}
    named = {cls.__name__: schema for cls, schema in definitions.items()}
    if len(named) < len(definitions):
        raise TypeError(f"{name}: two classes have the same name")
    return {**head, **schema, "$defs": dict(sorted(named.items()))}


def _name_schema(name: str) -> str:
    """Return the `$id` of the schema of an output, with its version."""
    return f"urn:nsys2prv-ng:{name}:{_VERSIONS[OUTPUTS[name][0]]}"


def _describe_comparison(definitions: dict[type, Any]) -> dict[str, Any]:
    """Return the schema of a comparison: the fields of its first pair stand beside those of all."""
    docs = _find_docs(Comparison)
    properties = {
        "findings": {"type": "array", "items": _describe_type(Finding, definitions)},
        **_describe_class(Pair, definitions)["properties"],
        "pairs": {**_describe_type(list[Pair], definitions), "description": "Each later run and the first."},
        **{
            name: {**_describe_type(hint, definitions), "description": docs[name]}
            for name, hint in get_type_hints(Comparison, localns=_LATER).items()
            if name in ("scaling", "history", "traces")
        },
    }
    return _describe_object(Comparison, properties)


def _describe_class(cls: type, definitions: dict[type, Any]) -> dict[str, Any]:
    """Return the schema of the JSON that a dataclass makes; those of classes in it go to `definitions`."""
    names = [field.name for field in fields(cls)]
    keys = [name for key in _KEYS.get(cls, ("*",)) for name in (names if key == "*" else [key])]
    hints, docs = get_type_hints(cls, localns=_LATER), _find_docs(cls)
    properties = {}
    for name in keys:
        own = getattr(cls, name, None)
        if isinstance(own, property):
            hint, text = get_type_hints(own.fget)["return"], _unwrap(own.__doc__ or "")
        else:
            hint, text = hints[name], docs.get(name, "")
        schema = _describe_type(_HINTS.get((cls, name), hint), definitions)
        description = " ".join(filter(None, (text, _find_unit(name))))
        key = _RENAMED.get((cls, name), name)
        properties[key] = {**schema, "description": description} if description else schema
    return _describe_object(cls, properties)


def _describe_object(cls: type, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with all of these keys, and no other."""
    schema = {
        "description": _unwrap(cls.__doc__ or ""),
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return _add_version(cls, schema) if cls in _VERSIONS and cls not in _PARTS else schema


def _add_version(cls: type, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object whose first key is the version of its class."""
    version = {"const": _VERSIONS[cls], "description": "Changes when a key is removed or changes its meaning."}
    properties = {"version": version, **schema["properties"]}
    return schema | {"properties": properties, "required": list(properties)}


def _describe_type(hint: Any, definitions: dict[type, Any]) -> dict[str, Any]:
    """Return the schema of the values of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    if hint is Alignment:
        hint = AlignmentNumbers
    for name, (output, _) in OUTPUTS.items():
        if hint is output and hint not in _PARTS:
            return {"$ref": _name_schema(name)}
    if is_dataclass(hint) and isinstance(hint, type):
        if hint not in definitions:
            definitions[hint] = {}  # a class may contain itself
            definitions[hint] = _describe_class(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if origin in (Union, UnionType):
        parts = [_describe_type(part, definitions) for part in arguments]
        simple = all(part.keys() == {"type"} for part in parts)
        return {"type": [part["type"] for part in parts]} if simple else {"anyOf": parts}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _describe_type(arguments[1], definitions)}
    if origin is tuple and arguments[1:] != (...,):
        parts = [_describe_type(part, definitions) for part in arguments]
        return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts)}
    if origin in (list, tuple, frozenset):
        return {"type": "array", "items": _describe_type(arguments[0], definitions)}
    raise TypeError(f"{hint}: no JSON is known for this type")


def _find_unit(name: str) -> str:
    """Return a sentence with the unit of a field, which its name has; an empty text for none."""
    words = name.split("_")
    if words[-2:] == ["per", "s"]:
        return "Unit: bytes/s."
    units = [f"Unit: {_UNITS[word]}." for word in words if word in _UNITS]
    return units[0] if units else ""


@cache
def _find_docs(cls: type) -> Mapping[str, str]:
    """Return the docstring below each field of a dataclass, those of its bases included."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not is_dataclass(base):
            continue
        (tree,) = ast.parse(inspect.getsource(base)).body
        docs |= dict(_list_docs(tree.body))  # type: ignore[attr-defined]
    return docs


def _list_docs(body: list[ast.stmt]) -> Iterable[tuple[str, str]]:
    for field, text in pairwise(body):
        is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            yield field.target.id, _unwrap(text.value.value)  # type: ignore[attr-defined]


def _unwrap(text: str) -> str:
    """Return a docstring in one line, with JSON's word for None."""
    return re.sub(r"\bNone\b", "null", " ".join(text.split()))


def main(arguments: list[str]) -> int:
    """Write or check all schemas; return the exit code."""
    codes = [
        write_or_check(
            FOLDER / f"{name}.json",
            json.dumps(make_schema(name), indent=2, ensure_ascii=False) + "\n",
            arguments,
            __doc__,
        )
        for name in OUTPUTS
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
