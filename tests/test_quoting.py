"""File names in printed commands are one argument, and never an option."""

from __future__ import annotations

import shlex

import pytest

from memdiag import quoting
from memdiag.quoting import argument, file_argument


@pytest.mark.parametrize(
    ("path", "argument"), [("-q.pickle", "./-q.pickle"), ("a b", "a b"), ("a/-b", "a/-b"), ("a\nb", "FILE")]
)
def test_a_name_is_one_argument(path, argument):
    assert shlex.split(file_argument(path)) == [argument]


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (r"C:\work\rank0.pickle", r"C:\work\rank0.pickle"),
        (r"C:\my work\rank0.pickle", r'"C:\my work\rank0.pickle"'),
        (r"C:\a&b\rank0.pickle", r'"C:\a&b\rank0.pickle"'),
        ("-q.pickle", "./-q.pickle"),
    ],
)
def test_windows_has_double_quotes_only(monkeypatch, path, shown):
    monkeypatch.setattr(quoting, "ON_WINDOWS", True)
    assert file_argument(path) == shown
    assert argument("roundup_power2_divisions:[>:4]") == '"roundup_power2_divisions:[>:4]"'
