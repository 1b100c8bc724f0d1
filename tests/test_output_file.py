"""Output files are complete or absent, for every kind of path."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from memdiag.errors import MemdiagError
from memdiag.output_file import whole_file, write_whole


class Interrupted(Exception):
    """An error while a file is written."""


def half_written(file):
    with whole_file(file) as out:
        out.write(b"half")
        raise Interrupted


def test_an_error_leaves_the_old_file(tmp_path):
    file = tmp_path / "a.png"
    file.write_text("old")
    with pytest.raises(Interrupted):
        half_written(file)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_an_error_leaves_no_new_file(tmp_path):
    with pytest.raises(Interrupted):
        half_written(tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error_with_a_hint(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    with pytest.raises(MemdiagError, match="No space left on device") as raised:
        write_whole(link, "x" * 100_000)
    assert "space" in raised.value.hint


def test_a_directory_that_does_not_exist(tmp_path):
    with pytest.raises(MemdiagError, match="No such file or directory"):
        write_whole(tmp_path / "no" / "a.png", b"x")


def test_a_device_stays_a_device():
    write_whole(Path(os.devnull), b"x")
    assert not Path(os.devnull).is_file()


def test_a_pipe_gets_the_content(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"x")
    reader.join()
    assert read == [b"x"]
    assert pipe.is_fifo()


def test_a_link_stays_a_link_and_the_mode_is_kept(tmp_path):
    file, link = tmp_path / "a", tmp_path / "b"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    write_whole(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_long_name(tmp_path):
    file = tmp_path / ("x" * 255)
    write_whole(file, b"x")
    assert file.read_bytes() == b"x"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_file_in_a_directory_that_takes_no_other(tmp_path):
    file = tmp_path / "a"
    file.write_text("old")
    tmp_path.chmod(0o500)
    try:
        write_whole(file, b"new")
    finally:
        tmp_path.chmod(0o700)
    assert file.read_bytes() == b"new"
