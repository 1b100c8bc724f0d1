"""Recognises files that are not traces but often given instead of one, such as an archive that contains the trace."""

from __future__ import annotations

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from pathlib import Path

from memdiag.errors import RefusedFile
from memdiag.quoting import file_argument
from memdiag.sources.files import GZIP_MAGIC
from memdiag.text import phrase

# Name of the program: the bytes at its beginning, and the command that unpacks it.
_COMPRESSED = {
    "zstd": (b"\x28\xb5\x2f\xfd", "zstd -d"),
    "xz": (b"\xfd7zXZ\0", "xz -dk"),
    "bzip2": (b"BZh", "bzip2 -dk"),
    "7z": (b"7z\xbc\xaf\x27\x1c", "7z x"),
    "gzip twice": (GZIP_MAGIC, "gunzip -k"),  # the outer gzip is already decompressed
}
_WORKBOOK = b"[Content_Types].xml"  # the first member, or one of the first
_ZIP, _TORCH_SAVE = b"PK\x03\x04", b"/data.pkl"
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
_LFS = b"version https://git-lfs.github.com/spec/"
_SNAPSHOT_JSON = re.compile(
    rb'\s*\{\s*"(?:segments|device_traces|external_annotations)"\s*:\s*\['  # a snapshot
    rb'|\s*\{\s*"allocator_settings"\s*:\s*\{'  # the same with sorted keys
    rb'|\s*\[\s*\{\s*"device"\s*:\s*\d+\s*,\s*"address"\s*:'  # a list of segments
)


def is_zstd(head: bytes) -> bool:
    """Returns whether a file is compressed with zstd, whose first byte also begins a pickle of protocol 0."""
    return head.startswith(_COMPRESSED["zstd"][0])


def is_snapshot_in_json(head: bytes) -> bool:
    """Returns whether this is a memory snapshot in JSON."""
    return _SNAPSHOT_JSON.match(head.removeprefix(b"\xef\xbb\xbf")) is not None


def refuse_known(head: bytes, path: Path) -> None:
    """Raises RefusedFile with the next step if this is an archive, a pointer of Git LFS, or a snapshot in JSON.

    Args:
        head: The beginning of the file, decompressed if it is a gzip.
        path: The file.
    """
    file = file_argument(str(path))
    for name, (magic, command) in _COMPRESSED.items():
        if head.startswith(magic):
            raise _archive(path, name, f"{command} {file}")
    if head[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC):
        raise _archive(path, "tar", f"tar xf {file}")
    if head.startswith(_ZIP):
        if _TORCH_SAVE in head[:256]:
            raise RefusedFile(phrase("errors.torch-save", path=str(path)), phrase("errors.torch-save.hint", file=file))
        if _WORKBOOK in head:
            raise RefusedFile(phrase("errors.resaved.workbook", path=str(path)), phrase("errors.resaved.original"))
        raise _archive(path, "zip", f"unzip {file}")
    if head.startswith(_LFS):
        raise RefusedFile(phrase("errors.lfs-pointer", path=str(path)), phrase("errors.lfs-pointer.hint"))
    if is_snapshot_in_json(head):
        raise RefusedFile(phrase("errors.snapshot-json", path=str(path)), phrase("errors.snapshot-json.hint"))


def resaved(head: bytes) -> Iterator[tuple[str, bytes]]:
    """Yields the possible changes of a text by a spreadsheet or an editor: a key, and the text before the change."""
    if head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        yield "utf-16", head[: len(head) // 2 * 2].decode("utf-16", "replace").encode()
    first, line_end, rest = head.partition(b"\n")
    for key, separator in (("semicolons", b";"), ("tabs", b"\t")):
        if separator in first:
            yield key, first.replace(separator, b",") + line_end + rest


def _archive(path: Path, name: str, command: str) -> RefusedFile:
    return RefusedFile(
        phrase("errors.archive", path=str(path), name=name), phrase("errors.archive.hint", command=command)
    )
