"""The command compare as a user runs it: how sides are written, what is printed, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.summary.job import JobSummary
from tests.cli.program_runs import run
from tests.comparison.made import GPUS, MS, make_summary


def save(folder: Path, name: str, milliseconds: int, count: int = 6) -> Path:
    path = folder / f"{name}.json"
    make_summary([{"compute_ns": (milliseconds * MS + i) * GPUS} for i in range(count)]).save(path)
    return path


@pytest.fixture
def saved(tmp_path: Path) -> list[Path]:
    return [save(tmp_path, "before", 100), save(tmp_path, "after", 90), save(tmp_path, "later", 120)]


def verdicts_of(*arguments: object) -> list[tuple[str, str, str]]:
    done = run("compare", *arguments, "--json", "-q")
    assert done.returncode == 0, done.stderr
    pairs = json.loads(done.stdout)["pairs"]
    return [(pair["a"]["label"], pair["b"]["label"], pair["verdict"]["kind"]) for pair in pairs]


def test_sides_have_dashes_between_them(saved: list[Path]) -> None:
    before, after, later = saved
    expected = [("before", "after", "faster")]
    assert verdicts_of(before, "--", after) == expected
    assert verdicts_of(before, after) == expected  # saved summaries alone
    assert verdicts_of("--all", before, "--", "--align", "none", after) == expected
    assert verdicts_of(before, "--", after, "--", later) == [*expected, ("before", "later", "slower")]
    assert verdicts_of(before, after, "--label", "old", "--label", "new") == [("old", "new", "faster")]


def test_captures_have_a_plus_between_them(tmp_path: Path) -> None:
    """Two captures a side decide, and a slower run fails a pipeline."""
    a, b = ([save(tmp_path, f"{side}{n}", ms + n) for n in range(4)] for side, ms in (("a", 100), ("b", 120)))

    def join(files: list[Path]) -> list[object]:
        return [word for file in files for word in ("+", file)][1:]

    assert verdicts_of(*join(a), "--", *join(b)) == [("a", "b", "slower")]
    assert verdicts_of(*join(a[:2]), "--", *join(b[:2])) == [("a", "b", "slower")]
    assert verdicts_of(*join(b), "--", *join(a), "--", b[0]) == [("b", "a", "faster"), ("b", "b0", "no difference")]
    for limit, files, code in (("5%", a, 3), ("25%", a, 0), ("5%", a[:3], 3), ("20%", a, 0)):
        done = run("compare", *join(files), "--", *join(b), "--fail-over", limit)
        assert done.returncode == code
    done = run("compare", *join(a), "--", *join(b), "--markdown", "-q", "--html", tmp_path / "page.html")
    assert "**SLOWER** <code>b</code> is slower than <code>a</code>, over 4 and 4 captures:" in done.stdout
    assert "over 4 and 4 captures" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["before.json"], "write -- between the runs: nsys2prv-ng compare BEFORE... -- AFTER..."),
        (["before.json", "--"], "write -- between the runs"),
        (["--", "before.json"], "write -- between the runs"),
        (["before.json", "--", "--", "after.json"], "write -- between the runs"),
        (["before.json", "x.sqlite"], "write -- between the runs"),
        (["before.json", "+", "after.json"], "write -- between the runs"),
        (["before.json", "+", "--", "after.json"], "write + only between two captures of a run"),
        (["before.json", "--", "+", "after.json"], "write + only between two captures of a run"),
        (["before.json", "--", "before.json", "+", "+", "after.json"], "write + only between two captures of a run"),
        (["before.json", "after.json", "--", "later.json"], "a capture is either reports or one saved"),
        (["before.json", "after.json", "--label", "x"], "--label x: give 2 names, one for each side, none twice"),
        (["before.json", "after.json", "--fail-over", "x"], "--fail-over x: write a percentage, like 5%"),
        (["before.json", "after.json", "--label", "x", "--label", "x"], "--label: give 2 names, one for each side"),
        (
            ["before.json", "after.json", "--steps", "3:4"],
            "--steps 3:4: saved numbers cannot be restricted; give the reports",
        ),
        (["before.json", "after.json", "--skip-warmup"], "--skip-warmup: saved numbers cannot be restricted; give"),
        (["before.json", "after.json", "--json", "--markdown"], "--markdown: cannot be combined with --json"),
    ],
)
def test_what_cannot_be_asked_for(saved: list[Path], words: list[str], message: str) -> None:
    done = run("compare", *words, "-q", cwd=saved[0].parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_files_that_are_no_side(saved: list[Path], tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    for name, message in (("other.json", "make it with nsys2prv-ng summary --json"), ("none.json", "no such file")):
        done = run("compare", saved[0], "--", tmp_path / name, "-q")
        assert (done.returncode, done.stdout) == (1, "")
        assert message in done.stderr


@pytest.mark.parametrize(
    ("names", "limit", "code"),
    [
        (["before", "later"], "5%", 3),
        (["before", "later"], "19.5%", 3),
        (["before", "later"], "20.5%", 0),
        (["before", "after"], "5%", 0),
        (["before", "after", "later"], "5%", 3),
        (["before", "before"], "0%", 4),
        (["before", "few"], "5%", 4),
    ],
)
def test_exit_code_of_a_run_that_got_slower(
    saved: list[Path], tmp_path: Path, names: list[str], limit: str, code: int
) -> None:
    save(tmp_path, "few", 500, count=2)
    done = run("compare", *(tmp_path / f"{name}.json" for name in names), "--fail-over", limit)
    assert done.returncode == code
    assert ("in 2 steps: capture at least 4, or two captures" in done.stderr) is ("few" in names)


def test_the_call_is_what_the_command_prints(saved: list[Path]) -> None:
    summaries = [JobSummary.load(path) for path in saved[:2]]
    document = json.loads(run("compare", *saved[:2], "--json", "-q").stdout)
    for sides in (saved[:2], [[saved[0]], summaries[1]]):
        comparison = nsys2prv_ng.compare(sides, labels=["before", "after"])
        assert isinstance(comparison, nsys2prv_ng.Comparison)
        assert json.loads(json.dumps(comparison.to_dict())) == document
    assert [pair.b.label for pair in nsys2prv_ng.compare(summaries).pairs] == ["B"]


def test_folders_of_runs(tmp_path: Path) -> None:
    """A run is its folder with the summary that the Slurm script leaves; its name is that of the folder."""
    folders = [tmp_path / name for name in ("profile-17", "profile-18")]
    for folder, ms in zip(folders, (100, 120), strict=True):
        folder.mkdir()
        save(folder, "summary", ms)
    expected = [("profile-17", "profile-18", "slower")]
    assert verdicts_of(*folders) == verdicts_of(folders[0], "--", folders[1]) == expected
    other = save(tmp_path, "other", 80)
    assert verdicts_of(folders[0], other) == [("profile-17", "other", "faster")]
    assert verdicts_of(folders[0] / "summary.json", folders[1]) == expected
    loaded = [JobSummary.load(folder / "summary.json") for folder in folders]
    for a, b in (folders, map(str, folders), ([folders[0]], [folders[1]]), loaded, (folders[0], loaded[1])):
        [pair] = nsys2prv_ng.compare(a, b).pairs
        assert pair.verdict.kind == "slower" and pair.difference_ns == 20 * MS
    assert [pair.b.label for pair in nsys2prv_ng.compare([*folders, other]).pairs] == ["profile-18", "other"]
    (tmp_path / "empty").mkdir()
    done = run("compare", folders[0], "--", tmp_path / "empty", "-q")
    assert done.returncode == 1 and "empty" in done.stderr


def test_details_and_all_print_more(saved: list[Path]) -> None:
    lengths = []
    for words in ([], ["--details"], ["--all"]):
        done = run("compare", *saved[:2], "-q", *words)
        verdict = "FASTER        `after` is faster than `before`: 90.0 ms per median `step` instead of"
        assert done.stdout.startswith(verdict)
        assert done.stdout.isascii()
        lengths.append(len(done.stdout.splitlines()))
    assert lengths == sorted(lengths) and lengths[0] <= 25


@pytest.mark.parametrize("sides", ["x.json", [], 5, None])
def test_what_is_no_list_of_sides(sides: object) -> None:
    with pytest.raises(nsys2prv_ng.UsageError, match="sides"):
        nsys2prv_ng.compare(sides)  # type: ignore[arg-type]
