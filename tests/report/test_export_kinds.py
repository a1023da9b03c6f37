"""Which kind of export is made, and which that are there are used: SQLite files and folders of tables."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

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


def _folder(report: Path, ending: str = "_pqtdir", *, capture: bool = True, **about: str) -> Path:
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


# ------------------------------------------------------------------------------------------------ which one is made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("offered", "name"),
    [
        (HELP_2023, "rank.0_pqtdir"),
        (HELP_2023.replace("parquetdir", "arrows"), "rank.0_arwdir"),
        (HELP_2024, "rank.0.sqlite"),
    ],
)
def test_best_kind_that_is_offered(report: Path, fake: Fake, tmp_path: Path, offered: str, name: str) -> None:
    fake.behave(help=offered)
    made = export_report(report, tmp_path / "out", fake.nsys)
    assert made == report.with_name(name)
    assert _names(report.parent) == {report.name, name}
    assert export_report(report, tmp_path / "out", fake.nsys) == made
    assert len([kind for kind in _types(fake) if kind != "sqlite"]) == made.is_dir(), "made once"
    Database(made).close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquetdir", "arrowdir"])
def test_folder_is_what_nsys_wrote_and_what_it_left_out(report: Path, fake: Fake, tmp_path: Path, kind: str) -> None:
    fake.behave(help=HELP_2023 if kind == "parquetdir" else HELP_2023.replace("parquetdir", "arrows"))
    made = export_report(report, tmp_path, fake.nsys)
    written = _content(fake.folder / kind)
    found = _content(made)
    assert {name: found[name] for name in written} == written
    assert {Path(name).stem for name in set(found) - set(written)} == {"META_DATA_CAPTURE"}
    assert _pairs(made, "META_DATA_CAPTURE") == [("PROCESS_0:ENVIRONMENT_VARIABLE", 'RANK="3"')]
    assert _types(fake) == [kind, "sqlite"]


@pytest.mark.slow
def test_folder_has_an_empty_table_where_the_report_has_none(report: Path, fake: Fake, tmp_path: Path) -> None:
    """So that it is known to be complete, and is not made again."""
    del fake.how["capture"]
    fake.behave()
    made = export_report(report, tmp_path, fake.nsys)
    assert _pairs(made, "META_DATA_CAPTURE") == []
    export_report(report, tmp_path, fake.nsys)
    assert _types(fake) == ["parquetdir", "sqlite"]


@pytest.mark.slow
def test_folder_that_has_the_table_is_left_as_it_is(report: Path, fake: Fake, tmp_path: Path) -> None:
    fake.offer_folders("META_DATA_CAPTURE")
    made = export_report(report, tmp_path, fake.nsys)
    assert _content(made) == _content(fake.folder / "parquetdir")
    assert _types(fake) == ["parquetdir"]


@pytest.mark.slow
def test_folder_has_the_permissions_of_any_new_folder(report: Path, fake: Fake, tmp_path: Path) -> None:
    (fake.folder / "parquetdir").chmod(0o755)  # what nsys gives it
    assert export_report(report, tmp_path, fake.nsys).stat().st_mode & 0o777 == 0o755


# ------------------------------------------------------------------------------------------ which that are there do


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["_pqtdir", "_arwdir", ".sqlite"])
@pytest.mark.parametrize("with_nsys", [True, False])
def test_good_export_of_any_kind_is_used(
    report: Path, fake: Fake, tmp_path: Path, ending: str, with_nsys: bool
) -> None:
    there = report.with_suffix(".sqlite")
    if ending == ".sqlite":
        write_export(there)
    else:
        there = _folder(report, ending)
    before = _content(there)
    assert export_report(report, tmp_path, fake.nsys if with_nsys else None) == there
    assert fake.exports() == [] and _content(there) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "about",
    [
        {"EXPORT_PRODUCT_VERSION": "2024.2.4.1"},
        {"EXPORT_PARAM_TABLES_TO_EXPORT": "StringIds META_DATA.*"},
        {"EXPORT_PARAM_TIMES_TO_EXPORT": "[0,1000000000]"},
    ],
    ids=lambda about: next(iter(about)),
)
@pytest.mark.parametrize("ending", ["_pqtdir", ".sqlite"])
def test_other_version_or_part_of_the_report_is_replaced(
    report: Path, fake: Fake, tmp_path: Path, about: dict[str, str], ending: str
) -> None:
    if ending == ".sqlite":
        fake.behave(help=HELP_2024)
        there = report.with_suffix(".sqlite")
        values = {"EXPORT_PRODUCT_VERSION": VERSION, **about}
        write_export(there, values.pop("EXPORT_PRODUCT_VERSION"), **values)
    else:
        there = _folder(report, **about)
    before = _content(there)
    assert export_report(report, tmp_path, fake.nsys) == there
    assert _content(there) != before
    assert _names(report.parent) == {report.name, there.name}


@pytest.mark.slow
def test_folder_without_what_nsys_can_give_is_made_again(report: Path, fake: Fake, tmp_path: Path) -> None:
    there = _folder(report, capture=False)
    assert export_report(report, tmp_path, None) == there, "without nsys it must do"
    export_report(report, tmp_path, fake.nsys)
    assert _pairs(there, "META_DATA_CAPTURE")
    shutil.rmtree(there)
    _folder(report, capture=False)
    cannot = Fake(tmp_path / "other")
    cannot.offer_folders()
    cannot.behave(help=HELP_2023.replace("--tables", ""))
    assert export_report(report, tmp_path, cannot.nsys) == there
    assert cannot.exports() == []


@pytest.mark.slow
def test_folder_of_which_a_table_is_older_than_the_report(report: Path, fake: Fake, tmp_path: Path) -> None:
    """A recipe has added a table to an old export."""
    there = _folder(report)
    age(there / "StringIds.parquet", 200)
    export_report(report, tmp_path, fake.nsys)
    assert "NVTX_EVENTS" in {path.stem for path in there.iterdir()}


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


# --------------------------------------------------------------------------------------------------- foreign things


def _recipes_tables(there: Path) -> None:
    """What one of NVIDIA's recipes leaves: some tables, and none that says of what."""
    write_folder(there, {"StringIds": pa.table({"id": [0]})}, "parquet")


def _notes(there: Path) -> None:
    there.mkdir()
    (there / "notes.txt").write_text("my thesis")


def _export_with_notes(there: Path) -> None:
    _folder(there.with_name("rank.0.nsys-rep"), EXPORT_PRODUCT_VERSION="2022.1.1.1")
    (there / "notes.txt").write_text("my thesis")


def _export_with_folder(there: Path) -> None:
    _folder(there.with_name("rank.0.nsys-rep"), EXPORT_PRODUCT_VERSION="2022.1.1.1")
    (there / "more.parquet").mkdir()


def _empty_folder(there: Path) -> None:
    there.mkdir()


def _file(there: Path) -> None:
    there.write_text("my thesis")


FOREIGN = [_recipes_tables, _notes, _export_with_notes, _export_with_folder, _empty_folder, _file]


def _tree(path: Path) -> dict[str, bytes]:
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    return {str(file.relative_to(path)): b"/" if file.is_dir() else file.read_bytes() for file in files}


@pytest.mark.slow
@pytest.mark.parametrize("foreign", FOREIGN)
def test_what_is_no_export_stays_and_another_kind_is_made(report: Path, fake: Fake, tmp_path: Path, foreign) -> None:  # type: ignore[no-untyped-def]
    there = report.with_name("rank.0_pqtdir")
    foreign(there)
    before = _tree(there)
    assert export_report(report, tmp_path, fake.nsys) == report.with_name("rank.0_arwdir")
    assert _tree(there) == before


@pytest.mark.slow
@pytest.mark.parametrize("foreign", FOREIGN)
def test_nowhere_to_put_it(report: Path, fake: Fake, tmp_path: Path, foreign) -> None:  # type: ignore[no-untyped-def]
    for name in ("rank.0_pqtdir", "rank.0_arwdir", "rank.0.sqlite"):
        (_notes if name != "rank.0_pqtdir" else foreign)(report.with_name(name))
    before = _tree(report.parent)
    with pytest.raises(TranslationError, match=r"rank\.0_pqtdir: not an nsys export"):
        export_report(report, tmp_path, fake.nsys)
    assert _tree(report.parent) == before and fake.exports() == []


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


# --------------------------------------------------------------------------------------------------- damaged folders


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


@pytest.mark.slow
def test_table_of_the_capture_reads_as_any_other(report: Path, fake: Fake, tmp_path: Path) -> None:
    made = export_report(report, tmp_path, fake.nsys)
    assert pq.read_table(made / "META_DATA_CAPTURE.parquet").to_pydict() == {
        "name": ["PROCESS_0:ENVIRONMENT_VARIABLE"],
        "value": ['RANK="3"'],
    }
