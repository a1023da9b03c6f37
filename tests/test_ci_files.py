"""The jobs in samples/ci, with stand-ins for nsys, gh and curl on saved captures; the comparison is the real one."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.comparison.gate_captures import count_codes, read_captures
from tests.test_docs import COMMANDS, DOCS, QUOTES, ROOT

FILES = ROOT / "samples/ci"
COMMIT = "0123456789abcdef"
STAND_INS = {
    # Makes what it is told to, and no environment.
    "python3": 'test "$*" = "-m venv .venv"; mkdir -p .venv/bin; ln -sf /bin/true .venv/bin/pip',
    # Places the next saved capture in place of a report, if the program's words follow.
    "nsys": """
        while [ "$1" != -o ]; do shift; done
        test "$3 $4" = "python train.py"
        cp "$CAPTURES/$2.json" "$2.nsys-rep" """,
    "nsys2prv-ng": f"""
        printf '%s\\n' "$(printf '%q ' "$@")" >> "$CAPTURES/commands"
        if [ "$1" = compare ]; then exec {shlex.quote(sys.executable)} -m nsys2prv_ng "$@"; fi
        test "$1 $3" = "summary --save"; cp "$2" "$4" """,
    "gh": 'test "$1 $2 $3 $4" = "pr comment 7 --body-file"; test "$GH_TOKEN"; cp "$5" "$CAPTURES/comment"',
    "curl": """
        case "$*" in *" https://gitlab/api/v4/projects/5/merge_requests/7/notes") ;; *) exit 1 ;; esac
        case "$*" in *"PRIVATE-TOKEN: secret"*body@compare.md*) ;; *) exit 1 ;; esac
        cp compare.md "$CAPTURES/comment" """,
}


class Case(NamedTuple):
    """States of captures in the history and of the new ones, how the job ends, and what it says."""

    kept: list[str]
    new: str
    passes: bool
    warns: bool
    says: str


CASES = {
    "same": Case(["apart/gpu-none-0"] * 3, "apart/gpu-none-0", True, False, "not slower ("),
    "slower": Case(["apart/gpu-none-0"] * 3, "apart/gpu-kernel-20", False, False, ": slower ("),
    "undecided": Case(["turns/mixed-none-0"], "turns/mixed-host-10", True, True, "captures of such a program vary by"),
    "first": Case([], "apart/gpu-none-0", True, False, "The history is empty: nothing to compare with yet."),
    "other program": Case(["apart/host-none-0"], "network/ddp-none-0", True, True, "its captures differ in"),
}


class Done(NamedTuple):
    passes: bool
    warns: bool
    text: str
    keeps: bool
    """Whether it leaves a history for later jobs."""


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    """A case, with its captures in place: those in history/, and those that nsys will place."""
    chosen = CASES[request.param]
    for folder in ("bin", "captures", *(["work/history"] if chosen.kept else ["work"])):
        (tmp_path / folder).mkdir(parents=True)
    for name, text in STAND_INS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\nset -e\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    for number, state in enumerate(chosen.kept):
        read_captures()[state][number].save(tmp_path / f"work/history/old.{number}.json")
    for number in (1, 2):
        read_captures()[chosen.new][-number].save(tmp_path / f"captures/run{number}.json")
    return chosen


def run_block(script: str, words: list[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a block of a job in bash; return its exit code and what it prints."""
    known = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "CAPTURES": str(folder / "captures"),
        "GITHUB_PATH": str(folder / "captures/path"),
        "GITHUB_SHA": COMMIT,
        **environment,
    }
    command = ["bash", *words, "-c", script]
    done = subprocess.run(
        command,
        cwd=folder / "work",
        env=known,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def run_on_github(folder: Path, *, is_main: bool) -> Done:
    """Run the steps of the job as GitHub does: after a failure only those with `always()`."""
    job = yaml.safe_load((FILES / "github.yml").read_text())["jobs"]["performance"]
    facts = {
        "github.event_name": "push" if is_main else "pull_request",
        "github.ref": "refs/heads/main" if is_main else "refs/pull/7/merge",
        "github.repository": "us/program",
        "github.event.pull_request.head.repo.full_name": "" if is_main else "us/program",
        "github.event.pull_request.number": "" if is_main else "7",
        "github.token": "secret",
    }
    assert holds(job["if"], facts)
    passes, printed, keeps, restored = True, [], False, False
    for step in job["steps"]:
        if not (holds(step["if"], facts) if "if" in step else passes):
            continue
        uses = step.get("uses", "").partition("@")[0]
        if uses:
            assert uses in (
                "actions/checkout",
                "actions/cache/restore",
                "actions/cache/save",
                "actions/upload-artifact",
            )
            restored |= uses == "actions/cache/restore"
            keeps |= uses == "actions/cache/save"
            continue
        values = {**job["env"], **step.get("env", {})}
        values = {
            name: re.sub(r"\$\{\{ (.*?) \}\}", lambda match: facts[match[1]], text) for name, text in values.items()
        }
        code, text = run_block(step["run"], ["-e"], folder, values)
        passes &= code == 0
        facts[f"steps.{step.get('id')}.outcome"] = "failure" if code else "success"
        printed.append(text)
    text = "".join(printed)
    assert restored
    return Done(passes, "\n::warning title=Undecided::" in f"\n{text}", text, keeps)


def holds(condition: str, facts: Mapping[str, str]) -> bool:
    """Tell whether a condition of a step or job holds."""
    text = re.sub(r"\b(?:github|steps)(?:\.\w+)+", lambda match: repr(facts[match[0]]), condition)
    assert re.fullmatch(r"(?:always\(\)|'[^']*'|==|&&|\|\|| )+", text), text
    return bool(eval(text.replace("&&", "and").replace("||", "or"), {"always": lambda: True}))


def run_on_gitlab(folder: Path, *, is_main: bool) -> Done:
    """Run the job as GitLab does: all lines of its script in one shell."""
    job: dict[str, Any] = yaml.safe_load((FILES / "gitlab.yml").read_text())["performance"]
    rule = job["rules"][1 if is_main else 0]
    assert ("CI_COMMIT_BRANCH" if is_main else "merge_request_event") in rule["if"]
    values = {
        **job["variables"],
        **rule["variables"],
        "CI_DEFAULT_BRANCH": "main",
        "CI_COMMIT_SHORT_SHA": COMMIT[:8],
        "CI_API_V4_URL": "https://gitlab/api/v4",
        "CI_PROJECT_ID": "5",
        "COMMENT_TOKEN": "secret",
        **({"CI_COMMIT_BRANCH": "main"} if is_main else {"CI_MERGE_REQUEST_IID": "7"}),
    }
    script = "\n".join([*job["before_script"], *job["script"]])
    code, text = run_block(script, ["-e", "-o", "pipefail"], folder, values)
    warns = code in job["allow_failure"]["exit_codes"]
    policy = values[job["cache"]["policy"].removeprefix("$")]
    keeps = policy == "pull-push" and job["cache"]["when"] == "always" and job["cache"]["paths"] == ["history/"]
    return Done(code == 0 or warns, warns, text, keeps)


RUNNERS = {"github": run_on_github, "gitlab": run_on_gitlab}


@pytest.mark.slow
@pytest.mark.parametrize("where", RUNNERS)
@pytest.mark.parametrize("is_main", [False, True], ids=["request", "main"])
def test_jobs_tell_whether_the_program_got_slower(case: Case, where: str, is_main: bool, tmp_path: Path) -> None:
    done = RUNNERS[where](tmp_path, is_main=is_main)
    assert (done.passes, done.warns) == (case.passes, case.warns), done.text
    assert case.says in done.text
    comment = tmp_path / "captures/comment"
    assert comment.exists() != is_main
    written = (tmp_path / "work/compare.md").read_text()
    assert case.says in written and (is_main or comment.read_text() == written)
    assert done.keeps == is_main
    history = [path for path in (tmp_path / "work/history").glob("*.json") if not path.name.startswith("old.")]
    assert len(history) == (2 if is_main else 0)
    assert all(path.name.startswith(COMMIT[:8]) for path in history)
    for line in (tmp_path / "captures/commands").read_text().splitlines():  # stand-ins take what the program takes
        name, *words = shlex.split(line)
        COMMANDS[name].make_context(name, words)


@pytest.mark.parametrize("where", RUNNERS)
def test_a_program_that_fails_is_neither_compared_nor_kept(where: str, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "captures").mkdir()
    for name in ("python3", "nsys"):
        (tmp_path / "bin" / name).write_text(
            f"#!/bin/bash\nset -e\n{STAND_INS[name] if name == 'python3' else 'exit 1'}\n"
        )
        (tmp_path / "bin" / name).chmod(0o755)
    done = RUNNERS[where](tmp_path, is_main=True)
    assert not done.passes and not done.warns
    assert not [*tmp_path.rglob("*.json"), *tmp_path.rglob("compare.md")]


def test_the_guide_quotes_the_files() -> None:
    page = (DOCS / "guides/ci.md").read_text()
    assert QUOTES.fill_page(page) == page, "python docs/quotes.py writes ci.md"
    assert {*re.findall(r"<!-- file: samples/ci/(\S+) -->", page)} == {path.name for path in FILES.iterdir()}


@pytest.mark.parametrize(("kind", "share"), [("apart/gpu", 1.0), ("turns/host", 0.7), ("turns/mixed", 0.67)])
def test_unchanged_programs_pass_as_often_as_the_guide_says(kind: str, share: float) -> None:
    assert count_codes(f"{kind}-none-0", f"{kind}-none-0", 0.1, 2)[0] == pytest.approx(share, abs=0.005)
    assert f"{share:.0%}".replace("%", " %") in (DOCS / "guides/ci.md").read_text()
