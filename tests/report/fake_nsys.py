"""An nsys that is a script, which behaves, and fails, as the real one does."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from nsys2prv_ng.report import nsys as nsys_of
from nsys2prv_ng.report.export import find_export, make_export
from nsys2prv_ng.report.nsys import Nsys, find_nsys
from tests.report.table_folders import write_folder

HELP_2024 = "usage: nsys export [<args>] [report file]\n  -t, --type=  -f, --force-overwrite=  -o, --output=  --lazy=\n"
HELP_2023 = (
    HELP_2024 + "  --tables=\n  Possible values are: sqlite, hdf, json, info, arrow,\n  arrowdir, and parquetdir.\n"
)
HELP_NORMALISE = HELP_2024 + "  --ts-normalize=  Possible values are 'true' or 'false'.\n"
HELP_2026 = (
    HELP_2024 + "  --include-blobs=  Possible values are 'true' or 'false'.\n  --include-json=  Default is 'false'.\n"
)

# Reads its behaviour from the file `behaviour.json` beside it and appends each command line to `calls.jsonl`.
FAKE = """
import json, os, pathlib, shutil, signal, sqlite3, sys, time
here = pathlib.Path(__file__).parent
with open(here / "calls.jsonl", "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
how = json.loads((here / "behaviour.json").read_text())
if sys.argv[1:] == ["--version"]:
    print(how["version"])
    sys.exit(how.get("version_code", 0))
if sys.argv[1:] == ["export", "--help"]:
    print(how["help"])
    sys.exit(0)
options, rest = {}, []
words = iter(sys.argv[2:])
for word in words:
    if word.startswith("--") and "=" in word:
        options.update([word.split("=", 1)])
    elif word.startswith("--"):
        options[word] = next(words)
    else:
        rest.append(word)
kind = options["--type"]
assert sys.argv[1] == "export" and (kind == "sqlite" or kind in how["help"]) and len(rest) == 1, sys.argv
report = pathlib.Path(rest[0])
how.update(how.get("of_reports", {}).get(report.name, {}))
output = pathlib.Path(options["--output"])
assert options["--force-overwrite"] == "true" or not output.exists()
(here / "pid").write_text(str(os.getpid()))


def tell(what):
    with open(here / "spans.jsonl", "a") as spans:
        spans.write(json.dumps([what, report.name, os.getpid()]) + "\\n")


tell("begin")
if how.get("partial"):  # bytes on the disk before the failure, as when it is full
    output.write_bytes(b"SQLite format 3\\0half")
    pathlib.Path(str(output) + "-journal").write_bytes(b"half")
sys.stdout.write(how.get("says", ""))
sys.stdout.flush()
time.sleep(how.get("sleep", 0))
tell("end")
if how.get("signal"):
    os.kill(os.getpid(), how["signal"])
if how.get("code") or how.get("silent"):
    sys.exit(how.get("code", 0))
if kind != "sqlite":
    shutil.copytree(here / kind, output)
    for name, size in how.get("cut", {}).items():
        os.truncate(next(output.glob(name + ".*")), size)
    sys.exit(how.get("late_code", 0))
output.unlink(missing_ok=True)
if how.get("no_locks") and str(output).startswith(how["no_locks"]):  # a file system
    output.write_bytes(b"")
    sys.exit("std::exception::what: database is locked")
if how.get("copies"):  # a report that is an export by another name
    shutil.copyfile(report, output)
    sys.exit(0)
if "--tables" in options:
    assert options["--tables"] == "META_DATA_.*", options
    with sqlite3.connect(output) as database:
        database.execute("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")
        if "capture" in how:
            database.execute("CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)")
            database.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", how["capture"])
    sys.exit(0)
with sqlite3.connect(output) as database:
    database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    time.sleep(how.get("slow", 0))
    database.execute("CREATE TABLE %s (name TEXT, value TEXT)" % how.get("table", "META_DATA_EXPORT"))
    rows = [("EXPORT_PRODUCT_VERSION", how["product"]), ("REPORT", report.read_text())]
    if "--include-blobs" in how["help"]:
        rows.append(("EXPORT_PARAM_INCLUDE_BLOBS", options.get("--include-blobs", "false")))
        rows.append(("EXPORT_PARAM_INCLUDE_JSON", options.get("--include-json", "false")))
    if "--ts-normalize" in how["help"]:
        rows.append(("EXPORT_PARAM_TIME_NORMALIZE", options.get("--ts-normalize", "false")))
    database.executemany("INSERT INTO %s VALUES (?, ?)" % how.get("table", "META_DATA_EXPORT"), rows)
    if "messages" in how:
        database.execute("CREATE TABLE DIAGNOSTIC_EVENT (text TEXT)")
        database.executemany("INSERT INTO DIAGNOSTIC_EVENT VALUES (?)", [(text,) for text in how["messages"]])
    database.execute("CREATE TABLE last_table (x)")
database.close()
sys.exit(how.get("late_code", 0))
"""


class Fake:
    """A fake nsys in a folder of its own."""

    def __init__(self, folder: Path, name: str = "nsys", **behaviour: object) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / name
        (folder / "fake.py").write_text(FAKE)
        self.path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{folder / "fake.py"}" "$@"\n')
        self.path.chmod(0o755)
        self.how: dict[str, object] = {
            "version": "NVIDIA Nsight Systems version 2024.2.3.38-242334140272v0",
            "product": "2024.2.3.38",
            "help": HELP_2024,
        }
        self.behave(**behaviour)

    def behave(self, **behaviour: object) -> None:
        self.how.update(behaviour)
        (self.folder / "behaviour.json").write_text(json.dumps(self.how))

    def offer_folders(self, *names: str) -> None:
        """Export to folders as well, alike for all reports: tables of these names, and those of any export."""
        about = {"EXPORT_PRODUCT_VERSION": str(self.how["product"]), "EXPORT_PARAM_TABLES_TO_EXPORT": ""}
        tables = {name: pa.table({"id": pa.array([1, 2, 3])}) for name in ("StringIds", *names)}
        tables["META_DATA_EXPORT"] = pa.table({"name": list(about), "value": list(about.values())})
        for kind, form in (("parquetdir", "parquet"), ("arrowdir", "arrow stream")):
            shutil.rmtree(self.folder / kind, ignore_errors=True)
            write_folder(self.folder / kind, tables, form)
        self.behave(help=HELP_2023)

    def spans(self) -> list[tuple[str, str, int]]:
        """In the order of time: "begin" or "end" of an export, the report's name and the process."""
        spans = self.folder / "spans.jsonl"
        return [tuple(json.loads(line)) for line in spans.read_text().splitlines()] if spans.exists() else []

    def exports(self) -> list[list[str]]:
        """The command lines of all exports so far."""
        calls = self.folder / "calls.jsonl"
        lines = [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
        return [words for words in lines if words[0] == "export" and words[1] != "--help"]

    @property
    def nsys(self) -> Nsys:
        return Nsys(self.path, str(self.how["product"]))


def export_report(report: Path, out_folder: Path, nsys: Nsys | None = None) -> Path:
    """Return the report's export as export_all does for each report: one that is there already, else a new one."""
    nsys = nsys or find_nsys()
    return find_export(report, out_folder, nsys) or make_export(report, out_folder, nsys)


def hide_nsys(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """No nsys of this machine is found."""
    (folder / "empty").mkdir()
    monkeypatch.delenv("NSYS_HOME", raising=False)
    monkeypatch.setenv("PATH", str(folder / "empty"))
    monkeypatch.setattr(nsys_of, "INSTALL_FOLDERS", (f"{folder}/opt/*",))


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def write_report(path: Path, text: str = "the report of rank 0") -> Path:
    """Write what stands for a report, in a folder that is made, older than any export."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    age(path, 100)
    return path


def write_export(path: Path, version: str | None = "2024.2.3.38", **metadata: str) -> None:
    """An nsys export as another nsys would have left it."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        database.execute("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")
        if version is not None:
            database.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', ?)", (version,))
        database.executemany("INSERT INTO META_DATA_EXPORT VALUES (?, ?)", metadata.items())
