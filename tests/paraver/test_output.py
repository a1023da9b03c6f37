"""The files of a trace appear whole or not at all."""

from __future__ import annotations

import gzip
import os
import random
import threading
import time
import zlib
from pathlib import Path

import pytest

from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.paraver.output import BLOCK_BYTES, TraceOutput, compress


def write(path, *, force=False, body=b"records\n"):
    with TraceOutput(path, force=force) as trace:
        trace.write_text("pcf", "labels\n")
        trace.write_text("row", "rows\n")
        trace.write_header("header\n")
        for part in compress(body) if path.suffix == ".gz" else [body]:
            trace.write_prv(part, trace.header_size)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_three_files(tmp_path):
    write(tmp_path / "a.prv")
    assert names(tmp_path) == ["a.pcf", "a.prv", "a.row"]
    assert (tmp_path / "a.prv").read_bytes() == b"header\nrecords\n"
    assert (tmp_path / "a.row").read_text() == "rows\n"


def test_compressed_bytes_do_not_depend_on_time_or_name(tmp_path):
    write(tmp_path / "a.prv.gz")
    write(tmp_path / "b.prv.gz")
    assert names(tmp_path) == ["a.pcf", "a.prv.gz", "a.row", "b.pcf", "b.prv.gz", "b.row"]
    assert (tmp_path / "a.prv.gz").read_bytes() == (tmp_path / "b.prv.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.prv.gz").read_bytes()) == b"header\nrecords\n"


def test_a_failure_leaves_what_was_there(tmp_path):
    write(tmp_path / "a.prv")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RuntimeError), TraceOutput(tmp_path / "a.prv", force=True) as trace:
        trace.write_prv(b"half", 0)
        raise RuntimeError
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_nothing_is_under_the_final_names_while_it_is_written(tmp_path):
    with TraceOutput(tmp_path / "a.prv", force=False) as trace:
        trace.write_prv(b"x" * 10**6, 0)
        assert not {"a.prv", "a.pcf", "a.row"} & set(names(tmp_path))
    assert names(tmp_path) == ["a.pcf", "a.prv", "a.row"]


@pytest.mark.parametrize("existing", ["a.prv", "a.pcf", "a.row"])
def test_existing_files_need_force(tmp_path, existing):
    (tmp_path / existing).write_text("mine")
    with pytest.raises(TranslationError, match=rf"{existing}.*see force"):
        write(tmp_path / "a.prv")
    assert names(tmp_path) == [existing]
    write(tmp_path / "a.prv", force=True)
    assert (tmp_path / existing).read_text() != "mine"


def test_missing_folder_is_an_error_of_usage(tmp_path):
    with pytest.raises(UsageError, match="no such folder"):
        write(tmp_path / "no" / "a.prv")


def test_a_folder_in_the_way(tmp_path):
    (tmp_path / "a.prv").mkdir()
    with pytest.raises(TranslationError, match="is a folder"):
        write(tmp_path / "a.prv", force=True)


def test_permissions_follow_the_umask(tmp_path, monkeypatch):
    """The umask belongs to the whole process: other threads may make files meanwhile, so it must not change."""
    monkeypatch.delattr(os, "umask")
    write(tmp_path / "a.prv")
    (tmp_path / "plain").write_text("")
    assert {path.stat().st_mode for path in tmp_path.iterdir()} == {(tmp_path / "plain").stat().st_mode}


def test_the_file_in_the_way_is_the_one_that_was_named(tmp_path):
    write(tmp_path / "a.prv")
    with pytest.raises(TranslationError, match=r"a\.prv: exists already"):
        write(tmp_path / "a.prv")
    with pytest.raises(TranslationError, match=r"a\.pcf|a\.row"):
        write(tmp_path / "a.prv.gz")


def test_a_link_to_nothing_is_in_the_way_as_well(tmp_path):
    (tmp_path / "a.prv").symlink_to("nothing")
    with pytest.raises(TranslationError, match="exists already"):
        write(tmp_path / "a.prv")
    write(tmp_path / "a.prv", force=True)
    assert names(tmp_path) == ["a.pcf", "a.prv", "a.row"]


def test_a_link_is_replaced_and_not_what_it_leads_to(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "a.prv").symlink_to("mine")
    write(tmp_path / "a.prv", force=True)
    assert (tmp_path / "mine").read_text() == "mine" and not (tmp_path / "a.prv").is_symlink()


@pytest.mark.parametrize("name", ["a.prv", "a.pcf"])
@pytest.mark.parametrize("force", [False, True])
def test_pipes_and_devices_are_not_replaced(tmp_path, name, force):
    os.mkfifo(tmp_path / name)
    with pytest.raises(TranslationError, match="device or a pipe"):
        write(tmp_path / "a.prv", force=force)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/null")
    with pytest.raises(TranslationError, match="device or a pipe"):
        write(tmp_path / "a.prv", force=force)
    assert names(tmp_path) == [name]


def test_ended_between_two_files(tmp_path, monkeypatch):
    """At no moment is a .prv beside the labels of another trace."""
    write(tmp_path / "a.prv")
    replace = Path.replace

    def ended(path, target):
        if target.suffix == ".row":
            raise KeyboardInterrupt
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", ended)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "a.prv", force=True, body=b"other")
    assert names(tmp_path) == ["a.pcf", "a.row"]


def test_parts_that_others_write_go_to_their_places(tmp_path):
    with TraceOutput(tmp_path / "a.prv", force=False) as trace:
        trace.write_header("head\n")
        places = trace.reserve([3, 0, 4])
        assert places == [5, 8, 8]
        with trace.temporary.open("r+b") as file:
            for place, part in zip(places, (b"abc", b"", b"defg"), strict=True):
                file.seek(place)
                file.write(part)
    assert (tmp_path / "a.prv").read_bytes() == b"head\nabcdefg"


def test_of_two_runs_to_one_trace_the_first_to_end_wins(tmp_path):
    with (
        pytest.raises(TranslationError, match=r"a\.(prv|pcf|row): exists already"),
        TraceOutput(tmp_path / "a.prv", force=False) as late,
    ):
        late.write_header("late\n")
        write(tmp_path / "a.prv")
        before = {path.name: path.read_bytes() for path in tmp_path.glob("a.*")}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before and len(before) == 3


@pytest.mark.parametrize("names_of_traces", [("a.prv", "a.prv"), ("a.prv", "a.prv.gz")])
def test_the_renames_of_two_runs_do_not_mix(tmp_path, monkeypatch, names_of_traces):
    """Each run waits in the middle of its renames, longer than the other run takes."""
    replace = Path.replace

    def slow(path, target):
        time.sleep(0.1)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", slow)
    together = threading.Barrier(2)

    def run(number):
        with TraceOutput(tmp_path / names_of_traces[number], force=True) as trace:
            trace.write_text("pcf", f"labels {number}")
            trace.write_text("row", f"rows {number}")
            together.wait()

    runs = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for each in runs:
        each.start()
    for each in runs:
        each.join()
    assert (tmp_path / "a.pcf").read_text()[-1] == (tmp_path / "a.row").read_text()[-1]
    assert names(tmp_path) == sorted({"a.pcf", "a.row", *names_of_traces})


def test_what_a_killed_run_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    left = [tmp_path / f".a.{ending}.0123abcd.tmp" for ending in ("prv", "pcf", "row")]
    others = [tmp_path / name for name in (".b.prv.0123abcd.tmp", ".a.prv.mine.tmp", "a.prv.0123abcd.tmp")]
    with TraceOutput(tmp_path / "a.prv", force=False) as living:
        for path in (*left, *others):
            path.write_text("half")
        write(tmp_path / "a.prv.gz")
        assert living.temporary.exists() and all(path.exists() for path in others)
        assert [path.exists() for path in left] == [True, False, False]  # that run writes no a.prv
        for name in ("a.prv.gz", "a.pcf", "a.row"):
            (tmp_path / name).unlink()
    write(tmp_path / "a.prv", force=True)
    assert names(tmp_path) == sorted(["a.pcf", "a.prv", "a.row", *(path.name for path in others)])


def test_a_link_in_the_place_of_a_leftover_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    link = tmp_path / ".a.prv.0123abcd.tmp"
    link.symlink_to("mine")
    write(tmp_path / "a.prv")
    assert (tmp_path / "mine").read_text() == "mine" and link.is_symlink()


SIZES = [1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES, 5 * BLOCK_BYTES + 12345]


def text_of(size):
    numbers = random.Random(size)
    line = b"".join(b"2:1:1:1:1:%d:90000001:%d\n" % (i * 1009, numbers.randrange(1000)) for i in range(20000))
    return (line * (size // len(line) + 1))[:size]


def list_members(data):
    """Return the text of each member of a gzip file."""
    texts = []
    while data:
        one = zlib.decompressobj(31)
        texts.append(one.decompress(data) + one.flush())
        assert one.eof
        data = one.unused_data
    return texts


@pytest.mark.parametrize("size", SIZES)
def test_members_of_a_fixed_length(size):
    text = text_of(size)
    data = b"".join(compress(memoryview(text)))
    assert gzip.decompress(data) == text
    assert list_members(data) == [text[i : i + BLOCK_BYTES] for i in range(0, size, BLOCK_BYTES)]
    assert data[:8] == b"\x1f\x8b\x08\x00" + bytes(4)  # deflate, no name and no other field, no time


def test_no_text_is_no_member():
    assert list(compress(b"")) == []


def test_the_header_of_a_compressed_trace_is_a_member_of_its_own(tmp_path):
    with TraceOutput(tmp_path / "a.prv.gz", force=False) as trace:
        for suffix in ("pcf", "row"):
            trace.write_text(suffix, "")
        trace.write_header("#Paraver\n")
        for member in compress(b"1:1\n"):
            trace.write_prv(member, trace.header_size)
    assert list_members((tmp_path / "a.prv.gz").read_bytes()) == [b"#Paraver\n", b"1:1\n"]
