"""Finds or makes the export of a report (.nsys-rep), with the nsys of this machine.

The export stays beside the report, so that the next translation can use it again. nsys writes it in a temporary folder,
and it is renamed when it is complete: a failed or interrupted export leaves nothing behind.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from nsys2prv_ng.errors import ReportError, TranslationError
from nsys2prv_ng.report import nsys as nsys_program
from nsys2prv_ng.report.database import Database, load_reader, open_database
from nsys2prv_ng.report.export_settings import CAPTURE, EXPORT_TABLES, is_normalised, names_vclock, read_export_settings
from nsys2prv_ng.report.formats import EXPORT_FORMATS, PARQUET, SQLITE, TABLE_SUFFIXES, ExportFormat
from nsys2prv_ng.value_class import ValueClass

# Options that make newer versions keep data that they drop by default, and the entry in the export's metadata that
# records each option.
_COMPLETE = {"--include-blobs": "EXPORT_PARAM_INCLUDE_BLOBS", "--include-json": "EXPORT_PARAM_INCLUDE_JSON"}
_CHOSEN = ("EXPORT_PARAM_TABLES_TO_EXPORT", "EXPORT_PARAM_TIMES_TO_EXPORT")
"""Metadata entries that are set if only a part of the report was exported."""

OnOutput = Callable[[bytes], object]
T = TypeVar("T")


class _About(ValueClass):
    """The metadata of an export about itself, and the names of its tables."""

    values: dict[str, str]
    tables: frozenset[str]

    @property
    def is_part(self) -> bool:
        return any(self.values.get(name) for name in _CHOSEN)


def find_export(report: Path, out_folder: Path, nsys: nsys_program.Nsys | None) -> Path | None:
    """Return an existing good export in any format; None if there is none.

    Its name is the report's stem with the ending of its format. It is beside the report or in `out_folder`, where the
    name also has a hash of the report's path, because reports in different folders may have the same name. An export is
    good if it is newer than the report, covers the whole report, and was made by the same version of nsys with
    everything that this version can export. Without nsys, it is good if it is newer and whole.
    """
    if not report.is_file():
        raise ReportError(f"{report}: no such report")
    stems = _make_stems(report.absolute(), out_folder)
    candidates = (_locate_export(stem, format) for stem in stems for format in EXPORT_FORMATS)
    return next((path for path in candidates if _is_good(path, report, nsys)), None)


def make_export(
    report: Path,
    out_folder: Path,
    nsys: nsys_program.Nsys | None,
    children: nsys_program.Children | None = None,
    on_output: OnOutput = lambda _: None,
    *,
    keep: bool = True,
    tmp: Path | None = None,
) -> Path:
    """Make an export in the best format that `nsys` offers, beside the report or else in `out_folder`; return its path.

    Without `keep`, the export is always in `out_folder`, and the owner of the folder removes it. If the file system has
    no locks, nsys writes the export in `tmp`, by default the system's temporary folder.

    The new export replaces an older one. It never overwrites anything else: nsys then makes an export in another
    format, if it has one. `on_output` is called with what nsys prints. Raises TranslationError with a remedy if the
    report cannot be exported.
    """
    report = report.absolute()
    beside, elsewhere = _make_stems(report, out_folder)
    if nsys is None:
        raise _make_no_nsys_error(report, beside)
    maker = _Maker(report, nsys, children or nsys_program.Children(), on_output, tmp)
    if keep and (made := maker.make(beside)):
        return made
    _make_folder(report, out_folder)
    if made := maker.make(elsewhere):
        return made
    raise TranslationError(
        f"{report}: neither its folder nor {out_folder} can be written to keep its export; name another output folder"
    )


class _Maker(ValueClass):
    """Maker of the export of one report."""

    report: Path
    nsys: nsys_program.Nsys
    children: nsys_program.Children
    on_output: OnOutput
    tmp: Path | None

    def make(self, stem: Path) -> Path | None:
        """Make the export; return None if its folder cannot be written."""
        try:
            # The temporary folder also takes the files that SQLite keeps beside its database.
            work = Path(tempfile.mkdtemp(prefix=".nsys2prv-export-", dir=stem.parent))
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                return None
            raise TranslationError(
                f"{self.report}: cannot write its export in {stem.parent}: {error.strerror}"
            ) from error
        try:
            format, target = self._find_place(stem)
            made = work / target.name
            try:
                self._export_whole(format, made)
            except nsys_program.NoLocksError:
                self._export_elsewhere(format, made)
            self._put(made, target, work)
        except OSError as error:
            raise TranslationError(
                f"{self.report}: cannot keep its export in {stem.parent}: {error.strerror or error}"
            ) from error
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return target

    def _find_place(self, stem: Path) -> tuple[ExportFormat, Path]:
        """Return the first format that nsys offers whose place is free, and that place."""
        offered = [
            format
            for format in EXPORT_FORMATS
            if format.type in nsys_program.read_export_help(self.nsys.path) or format is SQLITE
        ]
        for format in offered:
            target = _locate_export(stem, format)
            if not _is_foreign(target):
                return format, target
        raise self._make_foreign_error(_locate_export(stem, offered[0]))

    def _export_elsewhere(self, format: ExportFormat, made: Path) -> None:
        """Let nsys write in the temporary folder, then copy what it wrote to `made`."""
        _remove(made)
        folder = self.tmp or Path(tempfile.gettempdir())
        try:
            with tempfile.TemporaryDirectory(prefix=".nsys2prv-export-", dir=folder) as work:
                elsewhere = Path(work) / made.name
                self._export_whole(format, elsewhere)
                if elsewhere.is_dir():
                    shutil.copytree(elsewhere, made)
                else:
                    shutil.copyfile(elsewhere, made)
        except OSError as error:
            raise TranslationError(
                f"{self.report}: the file system of {made.parent.parent} has no locks, and the export cannot be made in"
                f" {folder}: {error.strerror or error}; choose another temporary folder",
                see=("tmp",),
            ) from error

    def _export_whole(self, format: ExportFormat, output: Path) -> None:
        """Let nsys write a whole export, with vClock times if the report contains them."""
        self._export(format, output)
        if _lacks_vclock(output, self.nsys):
            _remove(output)
            self._export(format, output, f"{nsys_program.NORMALISE}=true")
        if format.is_folder:
            self._add_capture(output, _locate_export(output.with_name("capture"), SQLITE))

    def _export(self, format: ExportFormat, output: Path, *options: str, is_part: bool = False) -> None:
        """Let nsys write `output`. Raises TranslationError if it is missing, or not whole without `is_part`."""
        command = [str(self.nsys.path), "export", "--type", format.type, "--force-overwrite", "true"]
        command += ["--output", str(output)]
        command += [f"{option}=true" for option in _COMPLETE if option in nsys_program.read_export_help(self.nsys.path)]
        code, text = self.children.run([*command, *options, str(self.report)], on_output=self.on_output)
        if code or nsys_program.wrote_incompletely(text) or not (is_part or _is_whole(output)):
            raise nsys_program.describe_failure(self.report, self.nsys, code, text)

    def _add_capture(self, folder: Path, apart: Path) -> None:
        """Add the table that only SQLite exports have. Exporting it alone takes a tenth of the time."""
        suffix, names = next(path.suffix for path in folder.iterdir()), ("name", "value")
        target = folder / (CAPTURE + suffix)
        if target.exists() or "--tables" not in nsys_program.read_export_help(self.nsys.path):
            return
        self._export(SQLITE, apart, "--tables=META_DATA_.*", is_part=True)
        with closing(load_reader(apart)(apart)) as tables:
            is_present = CAPTURE in tables.tables
            values = [tables.read_values(CAPTURE, name, pa.string()) if is_present else [] for name in names]
        _write(pa.table(values, pa.schema([(name, pa.string()) for name in names])), target)

    def _put(self, made: Path, target: Path, work: Path) -> None:
        """Move a complete export to its place."""
        if _is_good(target, self.report, self.nsys):
            return  # another translation has made it in the meantime and may be reading it
        if _is_foreign(target):  # an export takes minutes
            raise self._make_foreign_error(target)
        if not made.is_dir():
            made.replace(target)
            return
        old = work / "old"
        if target.exists():  # a rename cannot replace a folder that has files
            target.rename(old)
        try:
            made.rename(target)
        except OSError:
            if old.exists() and not os.path.lexists(target):
                old.rename(target)
            raise

    def _make_foreign_error(self, target: Path) -> ReportError:
        return ReportError(
            f"{target}: not an nsys export, but in the place of the export of {self.report.name};"
            " move it away or delete it"
        )


def _lacks_vclock(export: Path, nsys: nsys_program.Nsys) -> bool:
    """Return whether an export has system clock times although this nsys can export vClock times.

    It can if the report was captured with vClock.
    """
    if not nsys_program.knows_vclock(nsys):
        return False
    about = _read_about(export)
    return about is not None and not is_normalised(about.values) and bool(_look_into(export, names_vclock))


def _remove(export: Path) -> None:
    """Remove an export, or the part that nsys wrote, if there is one."""
    if export.is_dir():
        shutil.rmtree(export)
    for path in export.parent.glob(f"{glob.escape(export.name)}*"):  # also SQLite's journal
        path.unlink()


def _make_stems(report: Path, out_folder: Path) -> tuple[Path, Path]:
    """Return the two paths of a report's exports, without endings: beside the report, and in `out_folder`."""
    digest = hashlib.sha256(os.fsencode(report)).hexdigest()[:8]
    return report.with_name(report.stem), out_folder.absolute() / f"{report.stem}-{digest}"


def _locate_export(stem: Path, format: ExportFormat) -> Path:
    return stem.with_name(stem.name + format.ending)


def _is_good(export: Path, report: Path, nsys: nsys_program.Nsys | None) -> bool:
    if not export.exists() or _find_time(export) <= report.stat().st_mtime_ns:
        return False
    about = _read_about(export)
    if about is None or about.is_part:
        return False
    if nsys is None:
        return True
    if nsys_program.parse_release(about.values.get("EXPORT_PRODUCT_VERSION", "")) != nsys.release:
        return False
    offered = nsys_program.read_export_help(nsys.path)
    if export.is_dir() and "--tables" in offered and CAPTURE not in about.tables:
        return False
    if _lacks_vclock(export, nsys):
        return False
    # `nsys stats` and `nsys profile --export` leave an export without NVTX payloads in the same place.
    return not any(option in offered for option, name in _COMPLETE.items() if about.values.get(name) == "false")


def _find_time(export: Path) -> int:
    """Return when an export was written (ns): for a folder, its oldest table, because recipes add tables to folders."""
    paths = [path for path in export.iterdir() if path.suffix in TABLE_SUFFIXES] if export.is_dir() else [export]
    return min((path.stat().st_mtime_ns for path in paths), default=0)


def _read_about(path: Path) -> _About | None:
    """Return the metadata of an export about itself; None if the path is not an nsys export."""
    about = _look_into(path, lambda database: _About(read_export_settings(database), database.tables))
    return None if about is None or about.tables.isdisjoint(EXPORT_TABLES) else about


def _look_into(path: Path, find: Callable[[Database], T]) -> T | None:
    """Return what `find` finds in an export; None if it cannot be read: reading it later reports what is wrong."""
    try:
        with open_database(path) as database:
            return find(database)
    except TranslationError:
        return None


def _is_whole(path: Path) -> bool:
    """Return whether nsys wrote a whole export: on a full disk it leaves cut files in folders, with exit code 0."""
    all_have_columns = _look_into(path, lambda database: all(map(database.list_columns, database.tables)))
    return bool(all_have_columns) and _read_about(path) is not None


def _is_foreign(path: Path) -> bool:
    """Return whether a path is something that must not be overwritten."""
    if not os.path.lexists(path):
        return False
    has_other_files = path.is_dir() and any(
        file.suffix not in TABLE_SUFFIXES or not file.is_file() for file in path.iterdir()
    )
    return has_other_files or _read_about(path) is None


def _write(table: pa.Table, path: Path) -> None:
    """Write a table to a Parquet file or an Arrow stream, by the suffix of the path."""
    if path.suffix in PARQUET.table_suffixes:
        from pyarrow import parquet

        parquet.write_table(table, path)
        return
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)


def _make_no_nsys_error(report: Path, beside: Path) -> TranslationError:
    home = os.environ.get("NSYS_HOME")
    looked = f"NSYS_HOME ({home or 'not set'}), PATH, /opt/nvidia, /usr/local/cuda*, /usr/lib/nsight-systems"
    by_hand = f'nsys export --type {SQLITE.type} --output "{beside.name}{SQLITE.ending}" "{report.name}"'
    places = (_locate_export(beside, format) for format in EXPORT_FORMATS)
    existing = "".join(f"; {path.name} {why}" for path in places if (why := _explain_unused(path)))
    return TranslationError(
        f"{report}: no nsys to export it with (looked in {looked}){existing}; load the nsight-systems module, "
        f"set NSYS_HOME to its folder, or export it where nsys is: {by_hand}"
    )


def _explain_unused(export: Path) -> str:
    if not export.exists():
        return ""
    about = _read_about(export)
    if about is None:
        return "is not an nsys export"
    if about.is_part:
        return "holds a part of the report: name it itself to translate that part"
    return "is older than the report: `touch` it if it is the report's"


def _make_folder(report: Path, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TranslationError(
            f"{report}: its folder cannot be written, and {folder} cannot be made to keep its export: "
            f"{error.strerror}; name another output folder"
        ) from error
