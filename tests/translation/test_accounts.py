"""The table of a translation and its JSON: what became of each event, beside counts by SQL in the reports."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.translation.result import SourceAccount, TranslationResult
from tests.conftest import SAMPLES
from tests.translated import translated_set

DDP = [SAMPLES / f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)]
MPI = [SAMPLES / f"mpi-4.rank{rank}.sqlite" for rank in range(4)]
WORDS = {
    "merged": "merged",
    "outside": "outside",
    "not selected": "not_selected",
    "not applicable": "not_applicable",
    "dropped": "lost",
}


def count(reports: list[Path], query: str) -> int:
    """Add up a number over reports."""
    total = 0
    for report in reports:
        with closing(sqlite3.connect(f"{report.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            total += connection.execute(query).fetchone()[0]
    return total


def read_table(text: str) -> dict[str, dict[str, int]]:
    """Return the numbers of each source by the title of their column, which ends where the title ends."""
    lines = text.split("\n")
    titles = [title for title in ("read", "written", *WORDS) if f"  {title}" in lines[0]]
    rows = {}
    for line in lines[1:]:
        if line.startswith("  "):
            break
        name, *numbers = line.split()
        rows[name] = dict(zip(titles, [int(number.replace(",", "")) for number in numbers], strict=True))
    return rows


def assert_law(result: TranslationResult) -> dict[str, dict[str, int]]:
    """Check that the columns of each row add up, and equal the JSON; return the table."""
    table = read_table(result.text())
    told = {source["name"]: source for source in json.loads(json.dumps(result.to_dict()))["sources"]}
    assert set(table) == {name for name, source in told.items() if source["read"]}
    for name, row in table.items():
        assert row["read"] == sum(number for title, number in row.items() if title != "read"), name
        source = told[name]
        assert set(source["kinds"]) == set(source["dropped"])
        for title, kind in WORDS.items():
            number = sum(n for reason, n in source["dropped"].items() if source["kinds"][reason] == kind)
            assert row.get(title, 0) == number, (name, title)
    shown = {title for row in table.values() for title in row}
    used = {title for title in shown if any(row[title] for row in table.values())}
    assert shown == used | {"read", "written", "dropped"}, (
        "a column is there if it has a number, and that of loss always"
    )
    return table


def test_memory_of_before_the_capture_and_its_level(tmp_path: Path) -> None:
    result = translated_set(DDP, tmp_path / "a", "cuda_memory").summary
    table = assert_law(result)
    usage = "FROM CUDA_GPU_MEMORY_USAGE_EVENTS"
    before = count(DDP, f"SELECT count(*) {usage} WHERE start = 0")
    every = count(DDP, f"SELECT count(*) {usage}")
    assert before > 10_000
    memory = table["cuda_memory"]
    assert (memory["read"], memory["written"], memory["outside"], memory["dropped"]) == (
        every,
        every - before,
        before,
        0,
    )
    # All that was there before the capture changes each level once.
    level = table["cuda_memory_level"]
    assert level["merged"] == every - level["written"] > 10_000 and level["dropped"] == level["outside"] == 0
    text = result.text()
    assert f"  cuda_memory: {before:,} outside, before the capture: only part of the memory in use\n" in text
    assert f"  cuda_memory_level: {level['merged']:,} merged into the next change at the same time" in text


def test_rows_of_one_call_and_short_calls(tmp_path: Path) -> None:
    result = translated_set(MPI, tmp_path / "a", "mpi,os_runtime").summary
    table = assert_law(result)
    several = " UNION ALL ".join(
        "SELECT start, globalTid, textId FROM " + name for name in ("MPI_P2P_EVENTS", "MPI_START_WAIT_EVENTS")
    )
    merged = count(
        MPI, f"SELECT count(*) - count(DISTINCT start || ' ' || globalTid || ' ' || textId) FROM ({several})"
    )
    short = count(MPI, "SELECT count(*) FROM OSRT_API WHERE eventClass = 27 AND end - start < 10000")
    assert merged > 0 and short > 10_000
    assert (table["mpi"]["merged"], table["mpi"]["not selected"], table["mpi"]["dropped"]) == (merged, 0, 0)
    calls = table["os_runtime"]
    assert (calls["merged"], calls["not selected"], calls["dropped"]) == (0, short, 0)
    assert f"  os_runtime: {short:,} not selected, shorter than the minimum of 10us\n" in result.text()
    assert f"  mpi: {merged:,} merged into another row of the same call\n" in result.text()


def test_other_ranks_are_not_selected(tmp_path: Path) -> None:
    table = assert_law(translated_set(DDP, tmp_path / "a", "kernels", Selection(ranks=frozenset({1, 2}))).summary)
    others = count([DDP[0], DDP[3]], "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL")
    chosen = count(DDP[1:3], "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL")
    row = table["kernels"]
    assert (row["read"], row["written"], row["not selected"]) == (chosen + others, chosen, others)
    assert row["dropped"] == 0


def test_what_is_missing_is_dropped(tmp_path: Path) -> None:
    """Only what cannot be shown is called dropped: here, kernels that end before they start."""
    report = tmp_path / "poor.sqlite"
    report.write_bytes(DDP[0].read_bytes())
    with closing(sqlite3.connect(report)) as connection, connection:
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1 WHERE rowid <= 7")
    result = translated_set([report], tmp_path / "a", "kernels", derived=False).summary
    row = assert_law(result)["kernels"]
    assert row == {"read": row["written"] + 7, "written": row["written"], "dropped": 7}
    assert "  kernels: 7 dropped, ends before it starts\n" in result.text()


@pytest.mark.parametrize(
    ("reason", "line", "kind"),
    [
        ("outside the chosen time", "x: 1,234 outside the chosen time", "outside"),
        (
            "outside the selected NVTX domains",
            "x: 1,234 not selected, outside the selected NVTX domains",
            "not_selected",
        ),
        ("unchanged", "x: 1,234 merged, unchanged", "merged"),
        ("to or from MPI_PROC_NULL", "x: 1,234 not applicable, to or from MPI_PROC_NULL", "not_applicable"),
        ("no thread", "x: 1,234 dropped, no thread", "lost"),
        ("a reason of nobody", "x: 1,234 dropped, a reason of nobody", "lost"),
    ],
)
def test_a_line_for_each_reason(reason: str, line: str, kind: str) -> None:
    account = SourceAccount("x", "X", read=1_234, dropped={reason: 1_234})
    assert account.list_reasons() == [line]
    assert account.kinds == {reason: kind}


def test_lines_follow_the_columns() -> None:
    reasons = ["no thread", "to or from MPI_PROC_NULL", "unchanged", "outside the chosen time", "on a folded thread"]
    account = SourceAccount("x", "X", read=5, dropped=dict.fromkeys(reasons, 1))
    words = [line.split(": 1 ")[1].split(",")[0] for line in account.list_reasons()]
    assert words == ["merged", "outside the chosen time", "not selected", "not applicable", "dropped"]
