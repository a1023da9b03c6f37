"""Which kind of export is made, and which that are there are used: SQLite files and folders of tables."""

import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.report.database import Database
from nsys2prv_ng.report.export import find_export, make_export
from nsys2prv_ng.report.files import get_export_size
from tests.conftest import SAMPLES
from tests.report.fake_nsys import (
    HELP_2023,
    HELP_2024,
    HELP_2026,
    Fake,
    age,
    export_report,
    hide_nsys,
    write_export,
    write_report,
)
from tests.report.table_folders import KINDS, folder_of, write_folder
from tests.tiers import cases

VERSION = "2024.2.3.38"


@pytest.fixture(autouse=True)
def _hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide_nsys(monkeypatch, tmp_path)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return write_report(tmp_path / "job" / "rank.0.nsys-rep", "the report")


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    made = Fake(tmp_path / "nsys" / "bin", capture=[["PROCESS_0:ENVIRONMENT_VARIABLE", 'RANK="3"']])
    made.offer_folders("NVTX_EVENTS")
    return made


def _folder(report: Path, *, ending: str = "_pqtdir", capture: bool = True, **about: str) -> Path:
    """An export to a folder as another nsys would have left it."""
    values = {"EXPORT_PRODUCT_VERSION": VERSION, **about}
    tables = {
        "StringIds": pa.table({"id": [0], "value": ["kept"]}),
        "META_DATA_EXPORT": pa.table({"name": list(values), "value": list(values.values())}),
    }
    if capture:
        tables["META_DATA_CAPTURE"] = pa.table({"name": ["A"], "value": ["B"]})
    folder = report.with_name(report.stem + ending)
    return write_folder(folder, tables, "parquet" if ending == "_pqtdir" else "arrow stream")


def _content(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()} if path.is_dir() else {"": path.read_bytes()}


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _types(fake: Fake) -> list[str]:
    return [words[words.index("--type") + 1] for words in fake.exports()]


def _pairs(path: Path, table: str) -> list[tuple[str, str]]:
    database = Database(path)
    try:
        return list(zip(*database.read_objects(table, ["name", "value"]).values(), strict=True))
    finally:
        database.close()


# ---- which one is used or made ---------------------------------------------------------------------------------------

ARROWS = HELP_2023.replace("parquetdir", "arrows")


def _recipes_tables(there: Path) -> None:
    """What one of NVIDIA's recipes leaves: some tables, and none that says of what."""
    write_folder(there, {"StringIds": pa.table({"id": [0]})}, "parquet")


def _notes(there: Path) -> None:
    there.mkdir(exist_ok=True)
    (there / "notes.txt").write_text("my thesis")


def _export_with(name: str) -> Callable[[Path], None]:
    """What makes an old export, with something of the user's in it."""

    def put(there: Path) -> None:
        _folder(there.with_name("rank.0.nsys-rep"), EXPORT_PRODUCT_VERSION="2022.1.1.1")
        _notes(there) if name == "notes.txt" else (there / name).mkdir()

    return put


FOREIGN = {
    "tables of a recipe": _recipes_tables,
    "notes": _notes,
    "an export with notes": _export_with("notes.txt"),
    "an export with a folder": _export_with("more.parquet"),
    "an empty folder": Path.mkdir,
    "a file": Path.touch,
}


def _tree(path: Path) -> dict[str, bytes]:
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    return {str(file.relative_to(path)): b"/" if file.is_dir() else file.read_bytes() for file in files}


OTHERS: dict[str, dict[str, str]] = {
    "version": {"EXPORT_PRODUCT_VERSION": "2024.2.4.1"},
    "tables": {"EXPORT_PARAM_TABLES_TO_EXPORT": "StringIds META_DATA.*"},
    "times": {"EXPORT_PARAM_TIMES_TO_EXPORT": "[0,1000000000]"},
}
"""What an export says of itself that is of another version, or of a part of the report."""


class Case(NamedTuple):
    """What lies beside the report and what nsys offers; and what is used: whether it is made, and its ending."""

    put: Callable[[Path], object] | None
    offered: str | None
    ending: str
    is_made: bool


def _put_sqlite(**about: str) -> Callable[[Path], None]:
    values = {"EXPORT_PRODUCT_VERSION": VERSION, **about}
    return lambda report: write_export(report.with_suffix(".sqlite"), values.pop("EXPORT_PRODUCT_VERSION"), **values)


def _put_with_an_old_table(report: Path) -> None:
    """A recipe has added a table to an old export."""
    age(_folder(report) / "StringIds.parquet", 200)


USED = {
    "parquet is best": Case(None, HELP_2023, "_pqtdir", True),
    "arrow is next": Case(None, ARROWS, "_arwdir", True),
    "sqlite is last": Case(None, HELP_2024, ".sqlite", True),
    "part without the capture": Case(lambda report: _folder(report, capture=False), HELP_2023, "_pqtdir", True),
    "nothing can give the capture": Case(lambda report: _folder(report, capture=False), None, "_pqtdir", False),
    "nsys cannot give the capture": Case(
        lambda report: _folder(report, capture=False), HELP_2023.replace("--tables", ""), "_pqtdir", False
    ),
    "a table is older than the report": Case(_put_with_an_old_table, HELP_2023, "_pqtdir", True),
}
for offered in (HELP_2023, None):
    for ending in ("_pqtdir", "_arwdir"):
        USED[f"good {ending}, {offered is not None}"] = Case(partial(_folder, ending=ending), offered, ending, False)
    USED[f"good .sqlite, {offered is not None}"] = Case(_put_sqlite(), offered, ".sqlite", False)
for kind, about in OTHERS.items():
    USED[f"folder of other {kind}"] = Case(partial(_folder, **about), HELP_2023, "_pqtdir", True)
    USED[f"sqlite of other {kind}"] = Case(_put_sqlite(**about), HELP_2024, ".sqlite", True)


@pytest.mark.slow
@pytest.mark.parametrize("case", USED.values(), ids=USED)
def test_which_export_is_used(report: Path, fake: Fake, tmp_path: Path, case: Case) -> None:
    """It alone lies beside the report, and is made once."""
    there = report.with_name(f"rank.0{case.ending}")
    if case.put is not None:
        case.put(report)
    before = _content(there) if there.exists() else None
    fake.behave(help=case.offered or "")
    assert export_report(report, tmp_path, fake.nsys if case.offered else None) == there
    assert (_content(there) != before) == case.is_made
    assert _names(report.parent) == {report.name, there.name}
    exports = len(fake.exports())
    assert export_report(report, tmp_path, fake.nsys if case.offered else None) == there
    assert len(fake.exports()) == exports and bool(exports) == case.is_made
    Database(there).close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquetdir", "arrowdir"])
@pytest.mark.parametrize("tables", ["NVTX_EVENTS", "META_DATA_CAPTURE", ""])
def test_folder_is_what_nsys_wrote_and_what_it_left_out(
    report: Path, fake: Fake, tmp_path: Path, kind: str, tables: str
) -> None:
    """An empty table stands for one that the report does not have, so that the folder is known to be complete."""
    fake.offer_folders(*filter(None, [tables]))
    (fake.folder / kind).chmod(0o755)  # what nsys gives it
    if not tables:
        del fake.how["capture"]
    fake.behave(help=HELP_2023 if kind == "parquetdir" else ARROWS)
    made = export_report(report, tmp_path, fake.nsys)
    written, found = _content(fake.folder / kind), _content(made)
    assert {name: found[name] for name in written} == written
    assert made.stat().st_mode & 0o777 == 0o755, "as of any new folder"
    is_whole = tables == "META_DATA_CAPTURE"
    assert {Path(name).stem for name in found.keys() - written.keys()} == (set() if is_whole else {"META_DATA_CAPTURE"})
    assert _types(fake) == [kind] if is_whole else [kind, "sqlite"]
    if not is_whole:
        expected = [("PROCESS_0:ENVIRONMENT_VARIABLE", 'RANK="3"')] if tables else []
        assert _pairs(made, "META_DATA_CAPTURE") == expected
        if kind == "parquetdir":
            assert [tuple(row.values()) for row in pq.read_table(made / "META_DATA_CAPTURE.parquet").to_pylist()] == (
                expected
            )


@pytest.mark.slow
def test_folder_without_blobs_is_made_again(report: Path, tmp_path: Path) -> None:
    new = Fake(tmp_path / "new", product=VERSION)
    new.offer_folders("META_DATA_CAPTURE")
    new.behave(help=HELP_2026 + HELP_2023)
    _folder(report, EXPORT_PARAM_INCLUDE_BLOBS="false")
    export_report(report, tmp_path, new.nsys)
    assert len(new.exports()) == 1 and "--include-blobs=true" in new.exports()[0]


def test_part_of_the_report_does_not_do_without_nsys(report: Path, tmp_path: Path) -> None:
    there = _folder(report, EXPORT_PARAM_TIMES_TO_EXPORT="[0,5]")
    with pytest.raises(TranslationError, match=rf"{there.name} holds a part of the report: name it itself"):
        export_report(report, tmp_path, None)


# ---- foreign things --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)
def test_what_is_no_export_stays(report: Path, fake: Fake, tmp_path: Path, foreign: Callable[[Path], object]) -> None:
    """Another kind is made, as long as there is one."""
    there = report.with_name("rank.0_pqtdir")
    foreign(there)
    before = _tree(there)
    assert export_report(report, tmp_path, fake.nsys) == report.with_name("rank.0_arwdir")
    assert _tree(there) == before
    shutil.rmtree(report.with_name("rank.0_arwdir"))
    for name in ("rank.0_arwdir", "rank.0.sqlite"):
        _notes(report.with_name(name))
    before, exports = _tree(report.parent), len(fake.exports())
    with pytest.raises(TranslationError, match=r"rank\.0_pqtdir: not an nsys export"):
        export_report(report, tmp_path, fake.nsys)
    assert _tree(report.parent) == before and len(fake.exports()) == exports


@pytest.mark.slow
def test_what_comes_during_the_export_stays(report: Path, fake: Fake, tmp_path: Path) -> None:
    there = report.with_name("rank.0_pqtdir")
    fake.behave(says="exporting")
    with pytest.raises(TranslationError, match="not an nsys export"):
        make_export(report, tmp_path, fake.nsys, on_output=_once(lambda: _notes(there)))
    assert _tree(there).keys() == {".", "notes.txt"}
    assert _names(report.parent) == {report.name, there.name}


@pytest.mark.slow
def test_export_that_another_translation_made_meanwhile_is_kept(report: Path, fake: Fake, tmp_path: Path) -> None:
    """It may be reading it."""
    fake.behave(says="exporting")
    made = make_export(report, tmp_path, fake.nsys, on_output=_once(lambda: _folder(report)))
    assert _pairs(made, "META_DATA_CAPTURE") == [("A", "B")]


def _once(function: Callable[[], object]) -> Callable[[bytes], None]:
    """Return a function that is called with each piece of output, and does something at the first."""
    todo = [function]

    def on_output(_: bytes) -> None:
        if todo:
            todo.pop()()

    return on_output


@pytest.mark.slow
def test_old_folder_comes_back_where_the_new_one_cannot_be_put(
    report: Path, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = _folder(report, EXPORT_PRODUCT_VERSION="2022.1.1.1")
    before = _content(there)
    rename = Path.rename

    def fails(self: Path, target: Path) -> Path:
        if ".nsys2prv-export-" in str(self) and self.name == there.name:
            raise OSError(5, os.strerror(5))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(TranslationError, match=r"cannot keep its export in .*: Input/output error"):
        export_report(report, tmp_path, fake.nsys)
    assert _content(there) == before
    assert _names(report.parent) == {report.name, there.name}


# ---- damaged folders -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("table", ["NVTX_EVENTS", "META_DATA_EXPORT", "StringIds"])
@pytest.mark.parametrize("size", [0, 100])
@pytest.mark.parametrize("kind", ["parquetdir", "arrowdir"])
def test_folder_with_a_cut_table_is_no_export(
    report: Path, fake: Fake, tmp_path: Path, kind: str, table: str, size: int
) -> None:
    fake.behave(
        cut={table: size}, help=HELP_2023 if kind == "parquetdir" else HELP_2023.replace("parquetdir", "arrows")
    )
    with pytest.raises(TranslationError, match="wrote no whole export") as error:
        export_report(report, tmp_path, fake.nsys)
    assert str(report) in str(error.value)
    assert _names(report.parent) == {report.name}


def test_folder_that_nsys_could_not_write_is_no_export(report: Path, fake: Fake, tmp_path: Path) -> None:
    """Exit code 0, and tables that can be read: what it says is all that tells."""
    fake.behave(says="Processing 5 events: [=100%]\n\nError writing bytes to file\nError writing bytes to file\n\n")
    with pytest.raises(TranslationError, match=r"no whole export: Error writing bytes to file; free space"):
        export_report(report, tmp_path, fake.nsys)
    assert _names(report.parent) == {report.name}


@pytest.mark.slow
def test_failure_keeps_the_old_folder(report: Path, fake: Fake, tmp_path: Path) -> None:
    there = _folder(report, EXPORT_PRODUCT_VERSION="2022.1.1.1")
    before = _content(there)
    fake.behave(cut={"NVTX_EVENTS": 10})
    with pytest.raises(TranslationError):
        export_report(report, tmp_path, fake.nsys)
    assert _content(there) == before and _names(report.parent) == {report.name, there.name}


def test_cut_folder_is_not_taken_for_an_export(report: Path, fake: Fake, tmp_path: Path) -> None:
    there = _folder(report)
    os.truncate(there / "META_DATA_EXPORT.parquet", 50)
    assert find_export(report, tmp_path, fake.nsys) is None


def test_real_age_of_a_folder(report: Path, fake: Fake, tmp_path: Path) -> None:
    """A folder that is touched, or got a file that is no table, is as old as its tables."""
    there = _folder(report)
    for path in there.iterdir():
        age(path, 200)
    os.utime(there, (time.time(), time.time()))
    (there / "notes.txt").write_text("new")
    assert find_export(report, tmp_path, fake.nsys) is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sample", cases(sorted(SAMPLES.glob("*.sqlite")), push=3), ids=lambda path: path.stem)
def test_size_of_a_folder_is_no_less_than_that_of_sqlite(tmp_path: Path, sample: Path, kind: str) -> None:
    """It decides how many reports are read at once in the memory that there is; Parquet packs the values."""
    folder = folder_of(sample, tmp_path, kind)
    least = 0.9 * sample.stat().st_size
    assert get_export_size(folder) >= least, (get_export_size(folder), sample.stat().st_size)
    (folder / "broken.parquet").write_bytes(b"PAR1 and no more")
    assert get_export_size(folder) >= least
