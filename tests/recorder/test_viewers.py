"""Recorded files open in other tools: PyTorch's own viewers, and pt-snap if MEMDIAG_TEST_PT_SNAP names its command."""

from __future__ import annotations

import os
import pickletools
import shlex
import subprocess

import pytest

from tests.memory_viz import check

VIEW = """
import pickle, sys
from torch.cuda import _memory_viz as viz
content = pickle.load(open(sys.argv[1], "rb"))
for function in (viz.trace_plot, viz.segment_plot):
    print(len(function(content)) > 1000)
print(len(viz.segsum(content)) > 50, len(viz.trace(content)) > 50, len(viz.memory(content, lambda text: text)) > 50)
"""


def test_pytorchs_memory_viz_module_reads_the_file(record, tmp_path, plain_run):
    run = plain_run(record)
    script = tmp_path / "view.py"
    script.write_text(VIEW)
    seen = record(str(script), str(run.path()), recorded=False)
    assert seen.done.stdout.split()[-5:] == ["True"] * 5  # torch_npu prints warnings first
    _is_plain(run.path())


def test_pytorchs_browser_viewer_draws_the_whole_file(record, plain_run, pytorchs_viewer):
    path = plain_run(record).path()
    found = check(pytorchs_viewer, path)
    assert sum(device.tensors for device in found.values()) > 100


def test_pt_snap_imports_the_file(record, tmp_path, plain_run):
    """pt-snap imports the file; it needs every block, also on the CPU, to be in a segment allocated earlier."""
    command = shlex.split(os.environ.get("MEMDIAG_TEST_PT_SNAP", ""))
    if not command:
        pytest.skip("name the command of pt-snap in MEMDIAG_TEST_PT_SNAP")
    words = [*command, "import", str(plain_run(record).path()), "--no-focus", "--output-dir", str(tmp_path)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.glob("*.db"))


def _is_plain(path):
    """Asserts that a file uses pickle protocol 4 and no operation that executes code when it is loaded."""
    operations = {}
    for operation, argument, _ in pickletools.genops(path.read_bytes()):
        operations.setdefault(operation.name, argument)
    assert operations["PROTO"] == 4
    runs = {
        "GLOBAL",
        "STACK_GLOBAL",
        "REDUCE",
        "BUILD",
        "INST",
        "OBJ",
        "NEWOBJ",
        "NEWOBJ_EX",
        "EXT1",
        "EXT2",
        "EXT4",
        "PERSID",
        "BINPERSID",
    }
    assert not runs & set(operations)
