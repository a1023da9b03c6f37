"""What programs, scripts and users' cfgs rely on stays as it was released (docs/start/install.md, "What stays").

`data/released.json` has the names of the last release: options, names of the Python package and keywords of its calls,
the keys of the JSON outputs with their types, the sources in their order, event types with their numbers, labels
and fixed values, and presets. `python -m tests.test_stability` writes those of now, for a release.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main

import nsys2prv_ng
from nsys2prv_ng import source_names
from nsys2prv_ng.bundled.presets import list_presets
from nsys2prv_ng.cli.app import app
from nsys2prv_ng.paraver import event_types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.sources.registry import DERIVED, SOURCES

ROOT = Path(__file__).parents[1]
RELEASED = ROOT / "tests/data/released.json"
SCHEMAS = ROOT / "docs/reference/schemas"


def list_options() -> list[str]:
    commands = typer.main.get_command(app).commands
    return sorted(
        f"{name} {word}"
        for name, command in commands.items()
        for parameter in command.params
        if parameter.param_type_name == "option"
        for word in (*parameter.opts, *parameter.secondary_opts)
    )


def list_python() -> list[str]:
    """Return the names of the package, and of the parameters of its calls."""
    names = set(nsys2prv_ng.__all__)
    for name in nsys2prv_ng.__all__:
        value = getattr(nsys2prv_ng, name)
        if inspect.isfunction(value):
            names |= {f"{name}({parameter})" for parameter in inspect.signature(value).parameters}
    return sorted(names)


def walk_keys(schema: dict[str, Any], part: dict[str, Any], place: str, within: tuple[str, ...]) -> Iterator[str]:
    """Yield each key of a schema with its types: `.gpus[].busy_ns "integer"`. A class within itself is not listed."""
    for choice in part.get("anyOf", [part]):
        if "$ref" in choice:
            name = choice["$ref"].rpartition("/")[2]
            if name in within:
                yield f"{place} {within[-1]} again"
                continue
            yield from walk_keys(schema, schema["$defs"][name], place, (*within, name))
        elif "properties" in choice:
            yield f"{place} object"
            for key, inner in choice["properties"].items():
                yield from walk_keys(schema, inner, f"{place}.{key}", within)
        elif choice.get("type") == "array" and isinstance(choice.get("items"), dict):
            yield f"{place} array"
            yield from walk_keys(schema, choice["items"], f"{place}[]", within)
        elif choice.get("type") == "object" and isinstance(choice.get("additionalProperties"), dict):
            yield f"{place} object by name"
            yield from walk_keys(schema, choice["additionalProperties"], f"{place}{{}}", within)
        else:
            yield f"{place} {json.dumps(choice['type'] if 'type' in choice else sorted(set(choice) - {'description'}))}"


def list_json() -> dict[str, list[str]]:
    """Return the keys of each output, by its name and version."""
    outputs = {}
    for path in sorted(SCHEMAS.glob("*.json")):
        schema = json.loads(path.read_text())
        version = schema["properties"].pop("version")["const"]
        if path.stem == "stats":
            del schema["properties"]["summary"]  # the output of that name
        outputs[f"{path.stem} {version}"] = sorted(set(walk_keys(schema, schema, "", ())))
    return outputs


def list_sources() -> list[str]:
    return [source.name for source in (*SOURCES, *DERIVED)]


def list_types() -> list[EventType]:
    """Return every event type of the module, alone or in a mapping or tuple."""
    types: list[EventType] = []
    for value in vars(event_types).values():
        members = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else (value,)
        types += [member for member in members if isinstance(member, EventType)]
    return types


def describe_types() -> dict[str, str]:
    """Return the label of each event type, with its unit, and then its fixed values, by number."""
    return {
        str(kind.number): "; ".join([kind.title, *(f"{n} {label}" for n, label in sorted((kind.values or {}).items()))])
        for kind in sorted(list_types(), key=lambda kind: kind.number)
    }


def list_names() -> dict[str, Any]:
    return {
        "options": list_options(),
        "python": list_python(),
        "json": list_json(),
        "sources": list_sources(),
        "event_types": describe_types(),
        "presets": sorted(preset.name for preset in list_presets()),
    }


@pytest.fixture(scope="module")
def released() -> dict[str, Any]:
    names: dict[str, Any] = json.loads(RELEASED.read_text())
    assert len(names["options"]) > 130 and len(names["python"]) > 120 and len(names["json"]) == 5
    return names


def test_options_stay(released: dict[str, Any]) -> None:
    assert sorted(set(released["options"]) - set(list_options())) == []


def test_names_of_presets_stay(released: dict[str, Any]) -> None:
    """Users open them by name. Filters have the suffix .xml, the others .cfg."""
    assert sorted(set(released["presets"]) - set(list_names()["presets"])) == []


def test_names_of_python_stay(released: dict[str, Any]) -> None:
    assert sorted(set(released["python"]) - set(list_python())) == []


def test_keys_of_a_version_of_an_output_stay(released: dict[str, Any]) -> None:
    """An output with another version may have other keys."""
    now = list_json()
    missing = {name: sorted(set(keys) - set(now[name])) for name, keys in released["json"].items() if name in now}
    assert {name: keys for name, keys in missing.items() if keys} == {}


def test_versions_of_outputs_only_grow(released: dict[str, Any]) -> None:
    before, now = (dict(name.split() for name in names) for names in (released["json"], list_json()))
    assert all(int(now[name]) >= int(version) for name, version in before.items())


def test_sources_stay_in_their_order(released: dict[str, Any]) -> None:
    """Users type the names, and the lines of a translation's account have this order."""
    assert [name for name in list_sources() if name in released["sources"]] == released["sources"]
    constants = {name: value for name, value in vars(source_names).items() if name.isupper()}
    assert constants == {name.upper(): name for name in list_sources()}


def test_event_types_stay(released: dict[str, Any]) -> None:
    """Neither a number nor a label nor a fixed value changes, and no number stands for two types."""
    before, now = (
        {number: text.split("; ") for number, text in t.items()} for t in (released["event_types"], describe_types())
    )
    assert len(before) > 500 and len(list_types()) == len(now)
    assert {number: now[number][0] for number in before} == {number: words[0] for number, words in before.items()}
    assert {number: gone for number, words in before.items() if (gone := sorted(set(words) - set(now[number])))} == {}


def test_keys_are_found_at_every_depth() -> None:
    keys = list_json()["summary 3"]
    assert {".gpus array", '.gpus[].busy_ns "integer"', '.gpus[].idle_causes[].ns "integer"'} <= set(keys)


if __name__ == "__main__":
    RELEASED.write_text(json.dumps(list_names(), indent=0) + "\n")
