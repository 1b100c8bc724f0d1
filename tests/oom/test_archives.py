"""Archives of logs: the text members of zip and tar files are read."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile

import pytest

from memdiag.cli.main import main
from memdiag.errors import MemdiagError
from memdiag.oom.inputs import choose
from memdiag.oom.read import has_message, read_files, read_inputs

MESSAGE = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. "
    "GPU 3 has a total capacity of 8.00 GiB of which 1.00 GiB is free."
)
LOG = f"step 1\nstep 2\n{MESSAGE}\n".encode()
MEMBERS = {
    "logs/rank3.log": LOG,
    "logs/calm.log": b"step 1\n",
    "logs/x.bin": b"\0\1" + LOG,
    "deep/z.log.gz": gzip.compress(LOG),
}


def packed(path, members):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    else:
        with tarfile.open(path, f"w:{path.suffix[1:].removeprefix('tar')}") as archive:
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("name", ["x.zip", "x.tar", "x.tar.gz", "x.tar.bz2", "x.tar.xz"])
def test_the_texts_of_an_archive_are_read_with_their_own_lines(tmp_path, name):
    path = packed(tmp_path / name, MEMBERS)
    report = read_files([path])
    assert report.sources == (f"{path}/logs/rank3.log", f"{path}/logs/calm.log", f"{path}/deep/z.log.gz")
    assert [(message.source, message.line, message.rank) for message in report.messages] == [
        (f"{path}/logs/rank3.log", 3, 3),
        (f"{path}/deep/z.log.gz", 3, 3),
    ]


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz"])
def test_the_name_of_a_member_chooses_it(tmp_path, name):
    path = packed(tmp_path / name, MEMBERS)
    chosen = choose([f"{path}/deep/z.log.gz"], has_message=has_message)
    assert [message.source for message in read_inputs(chosen).messages] == [f"{path}/deep/z.log.gz"]
    with pytest.raises(MemdiagError, match="contains no text file"):
        read_inputs(choose([f"{path}/logs/none.log"], has_message=has_message))


def test_a_zip_in_a_folder_is_read(tmp_path):
    packed(tmp_path / "x.zip", MEMBERS)
    packed(tmp_path / "y.tar", MEMBERS)
    assert len(read_inputs(choose([str(tmp_path)], has_message=has_message)).messages) == 4


@pytest.mark.parametrize("name", ["x.zip", "x.tar"])
def test_an_archive_without_texts_is_an_error_and_one_without_messages_is_not(tmp_path, capsys, name):
    path = packed(tmp_path / name, {"x.bin": b"\0\1\2"})
    assert main(["oom", str(path)]) == 2
    said = capsys.readouterr().err
    assert "is not a text file" in said or f"unzip {path}" in said
    assert main(["oom", str(packed(path, {"x.log": b"step 1\n"}))]) == 0
    assert "No out-of-memory message" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz", "x.tar"])
def test_a_damaged_archive_is_no_crash(tmp_path, name):
    path = packed(tmp_path / name, MEMBERS)
    whole = path.read_bytes()
    for size in (10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:size])
        read_files([path])
