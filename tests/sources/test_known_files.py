"""Archives, pointers of Git LFS and snapshots in JSON are refused with the command that unpacks or converts them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import tarfile
import zipfile

import pytest

from memdiag.errors import RefusedFile
from memdiag.sources import load

SNAPSHOT = {
    "segments": [
        {
            "device": 0,
            "address": 4096,
            "total_size": 2 << 20,
            "stream": 0,
            "segment_type": "small",
            "blocks": [{"address": 4096, "size": 512, "requested_size": 500, "state": "active_allocated"}],
        }
    ],
    "device_traces": [[]],
}
DATA = pickle.dumps(SNAPSHOT, 4)


def zipped(member):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(member, DATA)
    return file.getvalue()


def tarred():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("trace.pickle")
        member.size = len(DATA)
        archive.addfile(member, io.BytesIO(DATA))
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "error", "hint"),
    [
        (zipped("trace.pickle"), "packed with zip", "unzip {file}"),
        (zipped("archive/data.pkl"), "written by torch.save", "unzip {file}"),
        (tarred(), "packed with tar", "tar xf {file}"),
        (gzip.compress(tarred()), "packed with tar", "tar xf {file}"),
        (lzma.compress(DATA), "packed with xz", "xz -dk {file}"),
        (bz2.compress(DATA), "packed with bzip2", "bzip2 -dk {file}"),
        (b"\x28\xb5\x2f\xfd\x24\x00", "packed with zstd", "zstd -d {file}"),
        (gzip.compress(gzip.compress(DATA)), "packed with gzip twice", "gunzip -k {file}"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "pointer of Git LFS", "git lfs pull"),
        (json.dumps(SNAPSHOT).encode(), "snapshot in JSON", "pickle.dump"),
        (json.dumps({"allocator_settings": {}, **SNAPSHOT}).encode(), "snapshot in JSON", "pickle.dump"),
        (json.dumps(SNAPSHOT["segments"], indent=1).encode(), "snapshot in JSON", "pickle.dump"),
    ],
)
def test_a_refusal_names_the_next_command(tmp_path, data, error, hint):
    file = tmp_path / "trace"
    file.write_bytes(data)
    with pytest.raises(RefusedFile, match=error) as refused:
        load(file)
    assert hint.format(file=file) in refused.value.hint


@pytest.mark.parametrize("content", [SNAPSHOT, SNAPSHOT["segments"]])
def test_a_snapshot_converted_from_json_is_read(tmp_path, content):
    file = tmp_path / "trace.pickle"
    file.write_bytes(pickle.dumps(json.loads(json.dumps(content))))
    assert load(file).devices[0].end["allocated"] == 512


RECORDS = "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Device Type\nPTA,1,2.5,4.0,NPU:0\n"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (RECORDS.encode("utf-16"), "it is UTF-16 text"),
        (RECORDS.encode("utf-16-be").join((b"\xfe\xff", b"")), "it is UTF-16 text"),
        (RECORDS.replace(",", ";").replace(".", ",").encode(), "separated by semicolons"),
        (RECORDS.replace(",", "\t").encode(), "separated by tabs"),
    ],
)
def test_a_table_from_a_spreadsheet_is_refused_with_the_reason(tmp_path, data, error):
    file = tmp_path / "memory_record.csv"
    file.write_bytes(data)
    with pytest.raises(RefusedFile, match=error) as refused:
        load(file)
    assert "original file" in refused.value.hint


@pytest.mark.parametrize("data", [RECORDS.encode(), b"\xef\xbb\xbf" + RECORDS.replace("\n", "\r\n").encode()])
def test_a_byte_order_mark_and_line_ends_of_windows_change_nothing(tmp_path, data):
    file = tmp_path / "memory_record.csv"
    file.write_bytes(data)
    assert load(file).devices[0].usage.reserved.tolist() == [4 << 20]


def test_the_hint_for_a_log_in_utf_16_is_the_command_for_logs(tmp_path):
    file = tmp_path / "train.log"
    file.write_bytes("step 1\nRuntimeError: stopped\n".encode("utf-16"))
    with pytest.raises(RefusedFile) as refused:
        load(file)
    assert f"memdiag oom {file}" in refused.value.hint
