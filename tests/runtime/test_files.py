"""Files appear whole or not at all."""

import fcntl
import threading
import time
from pathlib import Path

import pytest

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.runtime.files import lock_beside, open_atomically, write_atomically


def test_an_error_keeps_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_atomically(file, "köln\n")
    with pytest.raises(ZeroDivisionError), open_atomically(file) as opened:
        opened.write(b"half")
        opened.flush()
        assert file.read_bytes() == "köln\n".encode()
        _ = 1 / 0
    assert file.read_bytes() == "köln\n".encode()
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_is_missing_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(TranslationError, match=r"missing/a\.txt: cannot be written: No such file or directory$"):
        write_atomically(tmp_path / "missing" / "a.txt", "a")


def test_what_was_left_is_removed_once_nobody_has_it_open(tmp_path: Path) -> None:
    file, left = tmp_path / "a.txt", tmp_path / ".a.txt.0123abcd.tmp"
    left.write_text("half")
    with left.open("rb") as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        write_atomically(file, "first")
        assert left.exists()
    write_atomically(file, "second")
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_under_a_temporary_name_is_not_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(["0123abcd", "89abcdef"])
    monkeypatch.setattr("secrets.token_hex", lambda _: next(numbers))
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".a.txt.0123abcd.tmp").symlink_to("mine")
    write_atomically(tmp_path / "a.txt", "text")
    assert (tmp_path / "mine").read_text() == "mine" and (tmp_path / "a.txt").read_text() == "text"


def test_one_holder_of_a_lock_at_a_time(tmp_path: Path) -> None:
    inside, most = [], []

    def enter() -> None:
        for _ in range(20):
            with lock_beside(tmp_path / "a"):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 80 and max(most) == 1 and not list(tmp_path.iterdir())
