"""File names in printed commands are one argument, and never an option."""

from __future__ import annotations

import shlex

import pytest

from memdiag.quoting import file_argument


@pytest.mark.parametrize(
    ("path", "argument"), [("-q.pickle", "./-q.pickle"), ("a b", "a b"), ("a/-b", "a/-b"), ("a\nb", "FILE")]
)
def test_a_name_is_one_argument(path, argument):
    assert shlex.split(file_argument(path)) == [argument]
