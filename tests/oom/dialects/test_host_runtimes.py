from __future__ import annotations

import pytest

from memdiag.oom.read import read_text
from tests.oom.message_forms import GIB, Form, unit_size, whole_bytes
from tests.oom.single import commands, single

_BYTES = {"requested": whole_bytes("requested")}
_GB = {"allocated": unit_size("allocated", "{:.1f} GB", GIB), "limit": unit_size("limit", "{:.1f} GB", GIB)}
FORMS = [
    Form("host_runtime", "memory allocation of {requested} bytes failed", _BYTES),
    Form(
        "host_runtime", "java.lang.OutOfMemoryError: Cannot reserve {requested} bytes of direct buffer memory", _BYTES
    ),
    Form("host_runtime", 'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space'),
    Form(
        "host_runtime",
        "Error: cannot allocate vector of size {requested}",
        {"requested": unit_size("requested", "{:.1f} Gb", GIB)},
    ),
    Form("host_runtime", "pyarrow.lib.ArrowMemoryError: malloc of size {requested} failed", _BYTES),
    Form(
        "host_runtime",
        "Container killed by YARN for exceeding memory limits. {allocated} of {limit} physical memory used.",
        _GB,
    ),
]


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("fatal error: runtime: out of memory", "go"),
        (
            "FATAL ERROR: Ineffective mark-compacts near heap limit Allocation failed - JavaScript heap out of memory",
            "node",
        ),
        ("ERROR: LoadError: OutOfMemoryError()", "julia"),
        ("distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting", "dask"),
        ("# There is insufficient memory for the Java Runtime Environment to continue.", "java"),
    ],
)
def test_framework_of_each_runtime(text, framework):
    message = single(text)
    assert (message.dialect, message.framework, message.judgement.verdict) == ("host_runtime", framework, "host")


def test_an_impossible_size_has_an_unknown_cause():
    assert single("memory allocation of 70368744177664 bytes failed").judgement.verdict == "unknown"


@pytest.mark.parametrize(
    "text", ['throw new java.lang.OutOfMemoryError("no");', "memory allocation of the model took 3 s"]
)
def test_similar_text_is_not_a_message(text):
    assert not read_text(text).messages


def test_opencv_prints_the_bytes_that_the_host_refused():
    text = (
        "cv2.error: OpenCV(4.9.0) /x/alloc.cpp:73: error: (-4:Insufficient memory) Failed to allocate 987654321 "
        "bytes in function 'OutOfMemoryError'"
    )
    message = single(text)
    assert (message.dialect, message.framework, message.program) == ("host_runtime", "opencv", "OpenCV")
    assert message.fields == {"requested_bytes": 987654321}


@pytest.mark.parametrize(
    "text",
    [
        "fatal error: runtime: out of memory",
        "Error: cannot allocate vector of size 2.5 Gb",
        "ERROR: OutOfMemoryError()",
    ],
)
def test_other_languages_get_no_advice_on_python(text):
    lines = commands(text)
    assert lines.startswith("ps aux")
    assert "DataLoader" not in lines
    assert "torch" not in lines
