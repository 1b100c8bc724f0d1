"""A Ray cluster returns the same results as processes on this machine.

The tests need Ray, which the extra ``fleet`` installs; they are skipped without it.
"""

from __future__ import annotations

import sys

import pytest

from memdiag.errors import MemdiagError
from memdiag.fleet.local import Local
from memdiag.fleet.on_ray import OnRay


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MemdiagError, match="not installed") as error:
        OnRay()
    assert "memdiag[fleet]" in error.value.hint


@pytest.mark.filterwarnings("ignore")
def test_the_same_results_as_here(goldens, tmp_path, capsys):
    pytest.importorskip("ray")
    names = ("cuda-2.13.0-recorded", "cuda-2.13.0-oom", "npu-2.13.0-recorded")
    (tmp_path / "broken.pkl").write_bytes(b"nonsense")
    files = [*(goldens / name / "snapshot.pickle" for name in names), tmp_path / "broken.pkl"]
    tasks = [{"url": str(file), "name": file.name, "action": "diagnose", "redact": False} for file in files]
    engine = OnRay(workers=1)
    try:
        there = dict(engine.map(tasks))
        print("what Ray has to say while it works")
    finally:
        engine.close()
    print("data")
    assert capsys.readouterr().out == "data\n"
    assert there == dict(Local(workers=1).map(tasks))
    assert "error" in there[3]
