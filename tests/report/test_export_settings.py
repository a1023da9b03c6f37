"""What follows from the schema of an export: warnings of unknown ones, and the option that keeps payloads."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.report.export_settings import check_schema_version, choose_payload_option, describe_payload_remedy
from tests.cli.program_runs import run
from tests.sources.small_reports import MAIN, export


@pytest.mark.parametrize("version", ["3.0.0", "3.20.3", "3.25.0", "3.28.0", "3.28.1", "3.28", "unknown", "", "2.99.1"])
def test_known_schemas(version: str) -> None:
    assert check_schema_version(version) == []


@pytest.mark.parametrize("version", ["3.29.0", "4.0.0", "3.100"])
def test_newer_schemas(version: str) -> None:
    (warning,) = check_schema_version(version)
    assert warning.startswith(f"schema version {version} is newer than 3.28")


@pytest.mark.slow
def test_one_warning_for_all_reports(tmp_path: Path) -> None:
    """Of one schema; another one has its own."""
    rows = (("start", "end", "eventType", "globalTid", "text"), [(10, 20, 59, MAIN, "a")])
    for number, version in enumerate(("3.29.1", "3.29.1", "3.29.1", "3.30.0", "3.28.1")):
        about = (("name", "value"), [("EXPORT_SCHEMA_VERSION", version)])
        export(tmp_path / f"{number}.sqlite", [""], {"NVTX_EVENTS": rows, "META_DATA_EXPORT": about})
    done = run(*sorted(tmp_path.glob("*.sqlite")), tmp_path / "out.prv", "--sources", "nvtx", "-q", cwd=tmp_path)
    warnings = [line for line in done.stderr.splitlines() if "newer than" in line]
    assert [line.split(": ")[1:3] for line in warnings] == [
        [
            f"{tmp_path}/0.sqlite and 2 other reports",
            "schema version 3.29.1 is newer than 3.28, the newest that is known",
        ],
        [f"{tmp_path}/3.sqlite", "schema version 3.30.0 is newer than 3.28, the newest that is known"],
    ]


@pytest.mark.parametrize(
    ("version", "option"),
    [
        # What the export help of these versions offers, and where their exports have payloads.
        ("3.11.1", ""),
        ("3.11.4", "--include-json=true"),
        ("3.20.3", "--include-json=true"),
        ("3.23.9", "--include-json=true"),
        ("3.24.0", "--include-blobs=true"),
        ("3.28.1", "--include-blobs=true"),
        ("unknown", None),
    ],
)
def test_option_of_a_schema(version: str, option: str | None) -> None:
    assert choose_payload_option(version) == option


def test_remedy_of_several_schemas() -> None:
    both = "export with --include-blobs=true, or with --include-json=true before schema 3.24"
    assert describe_payload_remedy(["3.20.3", "3.13.2"]) == "export with --include-json=true"
    assert describe_payload_remedy(["3.25.0"]) == "export with --include-blobs=true"
    assert describe_payload_remedy(["3.7.2"]) == "export with a newer nsys and --include-blobs=true"
    assert [describe_payload_remedy(each) for each in (["3.20.3", "3.25.0"], ["?"], [])] == [both] * 3
