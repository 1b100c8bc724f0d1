"""A snapshot does not load torch's compiler, which PyTorch loads when its attribute is first read."""

from __future__ import annotations

import importlib
import sys
import threading

import pytest

from memdiag.recorder.backends.lazy_modules import compiler_stays_unloaded

PACKAGE = """
import importlib

def __getattr__(name):
    if name == "_inductor":
        return importlib.import_module("._inductor", __name__)
    raise AttributeError(name)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that loads its module _inductor when it is first read, as torch does."""
    (tmp_path / "lazily").mkdir()
    (tmp_path / "lazily" / "__init__.py").write_text(PACKAGE)
    (tmp_path / "lazily" / "_inductor.py").write_text("codecache = 'code'\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("lazily")
    for name in ("lazily", "lazily._inductor"):
        sys.modules.pop(name, None)


def test_reading_it_does_not_load_it(package):
    with compiler_stays_unloaded(package):
        assert not hasattr(package._inductor, "codecache")
    assert "lazily._inductor" not in sys.modules
    assert package._inductor.codecache == "code"  # the program still can


def test_a_loaded_one_stays(package):
    loaded = package._inductor
    with compiler_stays_unloaded(package):
        assert package._inductor is loaded
    assert package._inductor is loaded


@pytest.mark.parametrize(
    "read", [lambda package: package._inductor, lambda _: importlib.import_module("lazily._inductor")]
)
def test_another_thread_gets_the_real_module(package, read):
    found = []
    with compiler_stays_unloaded(package):
        other = threading.Thread(target=lambda: found.append(read(package).codecache))
        other.start()
        other.join()
    assert found == ["code"]
    assert package._inductor is sys.modules["lazily._inductor"]


def test_a_failure_leaves_nothing_behind(package):
    with pytest.raises(ValueError, match="snapshot"), compiler_stays_unloaded(package):
        raise ValueError("snapshot")
    assert "_inductor" not in vars(package)
