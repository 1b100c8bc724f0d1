"""Simple values skip typer's slow check; unknown kinds of values and unknown typer versions use it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from memdiag.cli import quick


class Check:
    """Replacement of typer's check of a value."""

    def coerce(self, value, **_):
        return ("typer", value)

    def describe(self):
        return "typer's"


class Param:
    """A parameter as in the known versions of typer."""

    multiple, nargs = False, 1

    def __init__(self, annotation):
        self._runtime_param = None
        self.type_descriptor = SimpleNamespace(annotation=annotation, parameter_info=SimpleNamespace())

    def get_runtime_param(self):
        if self._runtime_param is None:
            self._runtime_param = Check()
        return self._runtime_param


def checked(param, value):
    quick._quicken([param])
    return param.get_runtime_param().coerce(value, param=param, ctx=None)


@pytest.mark.parametrize(
    ("annotation", "value", "known"),
    [(str, "x", "x"), (bool, True, True), (Path, "x", Path("x")), (list[str], ("x",), ["x"]), (str, None, None)],
)
def test_plain_values_need_no_check(annotation, value, known):
    assert checked(Param(annotation), value) == known


def test_other_values_are_left_to_typer():
    assert checked(Param(int), "3") == ("typer", "3")


def test_what_the_stand_in_does_not_have_is_typers():
    param = Param(str)
    quick._quicken([param])
    assert param.get_runtime_param().describe() == "typer's"
    assert isinstance(param._runtime_param, Check)


@pytest.mark.parametrize("missing", ["_runtime_param", "type_descriptor"])
def test_a_parameter_without_the_known_attributes_stays_as_it_is(missing):
    param = Param(str)
    delattr(param, missing)
    quick._quicken([param])
    assert not isinstance(vars(param).get("_runtime_param"), quick._WhenGiven)


def test_a_parameter_without_the_known_method_stays_as_it_is():
    param = SimpleNamespace(_runtime_param=None, type_descriptor=None)
    quick._quicken([param])
    assert param._runtime_param is None


def test_a_type_that_is_described_in_another_way_is_left_to_typer():
    param = Param(str)
    param.type_descriptor = SimpleNamespace()
    assert checked(param, "x") == ("typer", "x")
