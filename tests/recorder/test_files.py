"""Writing of a recording, with progress on a terminal."""

from __future__ import annotations

import io
import pickle
import sys

import pytest

from memdiag.recorder import files


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stderr", "shown"), [(Terminal(), True), (io.StringIO(), False), (None, False)])
def test_a_long_write_shows_progress_on_a_terminal(monkeypatch, tmp_path, stderr, shown):
    monkeypatch.setattr(files, "_WAIT", 0)
    monkeypatch.setattr(files, "_PAUSE", 0)
    monkeypatch.setattr(sys, "stderr", stderr)
    content = {"device_traces": [[{"action": "alloc", "frames": f"{n}" * 10} for n in range(50_000)]]}
    assert files.write_pickle(str(tmp_path / "rank0.pkl"), content)
    assert pickle.loads((tmp_path / "rank0.pkl").read_bytes()) == content
    if stderr is not None:
        assert ("memdiag: writing rank0.pkl: 1 MiB" in stderr.getvalue()) == shown
        assert stderr.getvalue().endswith("\r\x1b[K") == shown
        assert "\n" not in stderr.getvalue()


def test_a_short_write_shows_no_progress(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert files.write_pickle(str(tmp_path / "rank0.pkl"), {})
    assert sys.stderr.getvalue() == ""
