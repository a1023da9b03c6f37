"""Files appear whole or not at all."""

from pathlib import Path

import pytest

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.runtime.files import open_atomically, write_atomically


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
