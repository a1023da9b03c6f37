"""The JSON outputs against their schemas: those of real reports, and with a key that has another name."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry

import nsys2prv_ng
from tests.cli.program_runs import run
from tests.conftest import HAS_LARGE_REPORTS, NO_REPORTS, REPORTS, REPOSITORY, SAMPLES
from tests.report_sets import sets

FOLDER = REPOSITORY / "docs/reference/schemas"
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}
REGISTRY: Registry = Registry().with_contents((schema["$id"], schema) for schema in SCHEMAS.values())
VALIDATORS = {name: Draft202012Validator(schema, registry=REGISTRY) for name, schema in SCHEMAS.items()}


def refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def read_strictly(text: str) -> Any:
    """The value of a JSON text. Python would also read NaN and Infinity, which no other reader takes."""
    return json.loads(text, parse_constant=refuse_constant)


def find_faults(name: str, value: object) -> list[str]:
    """What a schema finds wrong."""
    return [f"{error.json_path}: {error.message}" for error in VALIDATORS[name].iter_errors(value)]


def list_objects(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (part for part in (schema, *schema["$defs"].values()) if part.get("type") == "object")


# ---- the schemas -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_schemas_and_name_their_version(name: str) -> None:
    schema = SCHEMAS[name]
    Draft202012Validator.check_schema(schema)
    version = schema["properties"]["version"]["const"]
    assert schema["$id"] == f"urn:nsys2prv-ng:{name}:{version}"


@pytest.mark.parametrize("name", SCHEMAS)
def test_objects_have_all_of_their_keys_and_no_other(name: str) -> None:
    objects = list(list_objects(SCHEMAS[name]))
    assert objects
    for part in objects:
        assert part["additionalProperties"] is False and part["required"] == list(part["properties"])


@pytest.mark.parametrize("name", SCHEMAS)
def test_times_and_sizes_have_their_units(name: str) -> None:
    for part in list_objects(SCHEMAS[name]):
        for key, own in part["properties"].items():
            for ending, unit in (("_ns", "ns"), ("_us", "us"), ("bytes", "bytes"), ("seconds", "s")):
                if key.endswith(ending):
                    assert own["description"].endswith(f"Unit: {unit}."), key


def test_docstrings_of_fields_are_the_descriptions() -> None:
    gpu = SCHEMAS["summary"]["$defs"]["GpuNumbers"]
    assert gpu["description"].startswith("A physical GPU. Its span reaches")
    assert gpu["properties"]["overlap_ns"]["description"] == "Compute and communication at once. Unit: ns."
    step = SCHEMAS["summary"]["$defs"]["StepEfficiency"]["properties"]["threads"]  # a field of its base
    assert step["description"].startswith("The number of main threads")


# ---- real outputs ----------------------------------------------------------------------------------------------------


def rename(value: Any, *place: str | int) -> Any:
    """A copy in which the key at the end of a place has another name."""
    renamed = copy.deepcopy(value)
    part = renamed
    for step in place[:-1]:
        part = part[step]
    part["renamed"] = part.pop(place[-1])
    return renamed


@pytest.mark.slow
def test_a_summary_and_keys_of_another_name() -> None:
    """The keys are at every depth: of the whole, of a list, of what may be null, and of what is inherited."""
    done = run("summary", SAMPLES / "single-graph.sqlite", "--json", "-q", "-j", 1)
    value = read_strictly(done.stdout)
    assert find_faults("summary", value) == []
    assert sorted(find_faults("summary", rename(value, "duration_ns"))) == [
        "$: 'duration_ns' is a required property",
        "$: Additional properties are not allowed ('renamed' was unexpected)",
    ]
    places: list[tuple[str | int, ...]] = [
        ("version",),
        ("gpus", 0, "busy_ns"),
        ("gpus", 0, "idle_causes", 0, "cause"),
        ("efficiency", "losses", "host_ns"),
        ("efficiency", "threads"),
        ("facts", "captures"),
    ]
    for place in places:
        assert find_faults("summary", rename(value, *place)) != [], place
    assert find_faults("summary", value | {"version": value["version"] + 1}) == [
        f"$.version: {value['version']} was expected"
    ]


@pytest.mark.slow
def test_what_commands_write(tmp_path: Path) -> None:
    """Each command that has JSON, as a user types it."""
    ddp, mpi = (sorted(SAMPLES.glob(f"{name}*.sqlite")) for name in ("ddp-2x2", "mpi-4"))
    broken, stats, trace = tmp_path / "broken.sqlite", tmp_path / "stats.json", tmp_path / "trace.prv"
    broken.write_text("no database")
    done = run("translate", *ddp, broken, trace, "--stats", stats, "--summary", "-q", "-j", 1)
    assert done.returncode == 0, done.stderr
    found = read_strictly(stats.read_text())
    assert find_faults("stats", found) == []
    assert found["clocks"]["nodes"] and found["skipped"] and found["summary"]["waits"]  # what may be empty is not
    assert find_faults("stats", rename(found, "summary", "gpus", 0, "busy_ns")) != []
    done = run("summary", *mpi, "--json", "-q", "-j", 1)
    saved = {"mpi": read_strictly(done.stdout), "ddp": found["summary"]}
    assert find_faults("summary", saved["mpi"]) == []
    for name, value in saved.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(value))
    done = run("compare", *(tmp_path / f"{name}.json" for name in ("mpi", "ddp")), "--json", "-q")
    assert done.returncode == 0 and find_faults("comparison", read_strictly(done.stdout)) == []
    done = run("inspect", *mpi, broken, "--json", "-q", "-j", 1)
    assert done.returncode == 1 and find_faults("inspection", read_strictly(done.stdout)) == []
    done = run("what-if", *mpi, "--json", "-q", "-j", 1)
    assert done.returncode == 0, done.stderr
    found = read_strictly(done.stdout)
    assert find_faults("what-if", found) == [] and found["scenarios"] and found["slack"]


REAL = ("gpu/um-1", "cpu/2023.4.4-2node_rank", "public/mapf_report1")
"""Managed memory, MPI without GPUs on two nodes, and the oldest schema."""


@pytest.mark.slow
@pytest.mark.skipif(not HAS_LARGE_REPORTS, reason=NO_REPORTS)
@pytest.mark.parametrize("name", sets(REAL))
def test_outputs_of_real_reports(name: str, tmp_path: Path) -> None:
    folder, _, stem = name.partition("/")
    reports = sorted((REPORTS / folder).glob(f"{stem}*.sqlite"))
    result = nsys2prv_ng.translate(reports, tmp_path / "t.prv", summary=True, overview_trace=True, jobs=1)
    assert find_faults("stats", read_strictly(json.dumps(result.to_dict()))) == []
    assert result.overview is not None and result.summary is not None
    assert find_faults("inspection", read_strictly(json.dumps(nsys2prv_ng.inspect(reports, jobs=1).to_dict()))) == []
    compared = nsys2prv_ng.compare([result.summary, result.summary], labels=["a", "b"])
    assert find_faults("comparison", read_strictly(json.dumps(compared.to_dict()))) == []
