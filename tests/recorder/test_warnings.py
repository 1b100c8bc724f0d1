"""The recorder's warnings inside the recorded program are in the language of memdiag record."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.forking import memdiag_command

PROGRAM = (
    "import glob, shutil, torch; torch.empty(1000); "
    "(run,) = glob.glob('memdiag-*'); shutil.rmtree(run); open(run, 'w').close()"
)


@pytest.mark.parametrize(
    ("locale", "said"), [("C.UTF-8", "could not be written: "), ("zh_CN.UTF-8", "memdiag: 无法写入 ")]
)
def test_the_recorder_warns_in_the_language_of_the_command(root, tmp_path, locale, said):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MEMDIAG", "PYTHON", "RANK"))}
    path = os.pathsep.join([str(root), str(root / "tests" / "recorder" / "fake_torch")])
    done = subprocess.run(
        [*memdiag_command(), "record", "-q", "--", sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": path, "LC_ALL": locale},
        capture_output=True,
        encoding="utf-8",
        timeout=200,
        check=False,
    )
    assert said in done.stderr.splitlines()[0]
