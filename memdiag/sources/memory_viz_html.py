"""Pages written by ``torch.cuda._memory_viz``: a viewer with the snapshot's pickle inside, in base64."""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path

from memdiag.errors import RefusedFile
from memdiag.sources.files import read_bytes
from memdiag.sources.torch_snapshot import read_snapshot
from memdiag.text import phrase
from memdiag.trace.model import Trace

FORMAT = "memory-viz-html"

_BASE64 = re.compile(rb"[\"'`]((?:gA|KG|fX|XX)[A-Za-z0-9+/]{40,}={0,2})[\"'`]")


def sniff(head: bytes) -> bool:
    """Returns whether this is an HTML page; ``read`` checks whether it contains a snapshot."""
    start = head[:1024].lstrip().lower()
    return start.startswith((b"<!doctype html", b"<html", b"<head", b"<script", b"<body"))


def read(path: Path) -> Trace:
    """Reads the snapshot inside a page.

    Raises:
        RefusedFile: The page has no snapshot (a memory timeline page has only an image), or an unsafe one.
    """
    page = read_bytes(path)
    match = _BASE64.search(page)
    if match:
        try:
            return read_snapshot(base64.b64decode(match.group(1)), str(path), FORMAT)
        except binascii.Error:
            raise RefusedFile(
                phrase("errors.page-damaged", path=str(path)), phrase("errors.page-damaged.hint")
            ) from None
    if b"data:image/png;base64," in page:
        raise RefusedFile(
            phrase("errors.page-picture", path=str(path)),
            phrase("errors.page-picture.hint"),
        )
    raise RefusedFile(phrase("errors.page-no-snapshot", path=str(path)), phrase("errors.page-no-snapshot.hint"))
