"""Errors that values of tensors may cause are told from those of the code alone."""

import pytest

from memdiag.recorder.process import is_of_code


@pytest.mark.parametrize(
    ("exception", "expected"),
    [
        ("builtins.TypeError: make_grid() got an unexpected keyword argument 'range'", True),
        ("TypeError: Model.__init__() missing 2 required positional arguments: 'a' and 'b'", True),
        ("builtins.TypeError: f() takes from 1 to 2 positional arguments but 3 were given", True),
        ("builtins.AttributeError: module 'numpy' has no attribute 'float'", True),
        ("builtins.ModuleNotFoundError: No module named 'apex'", True),
        ("builtins.NameError: name 'x' is not defined", True),
        ("builtins.UnboundLocalError: cannot access local variable 'best'", False),  # set only if a loss is small
        ("builtins.AttributeError: 'NoneType' object has no attribute 'shape'", False),
        ("builtins.TypeError: 'NoneType' object is not iterable", False),
        ("builtins.ValueError: got an unexpected keyword argument", False),
        ("", False),
    ],
)
def test_only_errors_of_the_code_are(exception, expected):
    assert is_of_code(exception) is expected
