"""Recognises errors of operations that torch_npu itself does not support, on any NPU.

torch_npu ends the text of its errors with a code, ``ERR``, two digits for the part of torch_npu and three for the kind
of error (torch_npu/utils/_error_code.py). Kind 007 is "feature not supported". torch_npu checks this on the
host, without values of the device, so the program also fails on a real NPU.
"""

from __future__ import annotations

import re

_UNSUPPORTED = re.compile(r"\b(ERR\d{2}007) [A-Z]+ feature not supported\b")


def unsupported_code(exception: str) -> str:
    """Returns torch_npu's error code if it does not support what a program asked for, or "".

    Args:
        exception: Type and text of the exception that ended the program.
    """
    found = _UNSUPPORTED.search(exception)
    return found[1] if found else ""
