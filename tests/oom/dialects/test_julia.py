from __future__ import annotations

import pytest

from tests.oom.message_forms import GIB, Form, unit_size
from tests.oom.single import commands, single

_SIZES = {name: unit_size(name, "{:.3f} GiB", GIB) for name in ("requested", "allocated", "reserved")}
FORMS = [
    Form(
        "julia",
        "ERROR: LoadError: Out of GPU memory trying to allocate {requested}",
        {"requested": _SIZES["requested"]},
    ),
    Form(
        "julia",
        "Out of GPU memory trying to allocate {requested}\nMemory pool usage: {allocated} ({reserved} reserved)",
        _SIZES,
    ),
]


def _message(asked: str, used: str, rest: str) -> str:
    return (
        f"ERROR: Out of GPU memory trying to allocate {asked}\nEffective GPU memory usage: 91.00% ({used}/20.000 GiB)\n"
        f"{rest}\nStacktrace:"
    )


@pytest.mark.parametrize(
    ("asked", "used", "rest", "cause"),
    [
        ("4.000 GiB", "19.500 GiB", "Memory pool usage: 18.250 GiB (18.500 GiB reserved)", "capacity"),
        ("2.000 GiB", "19.500 GiB", "Memory pool usage: 14.000 GiB (18.500 GiB reserved)", "fragmentation"),
        ("2.000 GiB", "19.500 GiB", "Memory pool usage: 3.000 GiB (3.250 GiB reserved)", "other_process"),
        ("2.000 GiB", "12.000 GiB", "Memory pool usage: 11.000 GiB (11.250 GiB reserved)", "unknown"),
        ("2.000 GiB", "12.000 GiB", "CUDA allocator usage: 11.000 GiB (capped at 12.000 GiB)", "limit"),
        ("512 bytes", "12.900 GiB", "CUDA allocator usage: 11.990 GiB (capped at 12.000 GiB)", "limit"),
        ("2.000 GiB", "19.500 GiB", "", "capacity"),
    ],
)
def test_the_numbers_decide_the_cause(asked, used, rest, cause):
    message = single(_message(asked, used, rest))
    assert (message.dialect, message.framework, message.judgement.verdict) == ("julia", "julia", cause)
    assert message.fields["total_bytes"] == 20 * GIB


def test_the_breakdown_names_cuda_jl_as_the_allocator():
    message = single(_message("4.000 GiB", "19.500 GiB", "Memory pool usage: 18.250 GiB (18.500 GiB reserved)"))
    assert [entry.what for entry in message.ledger][:2] == ["allocated by CUDA.jl", "reserved but unallocated"]


def test_remedies_are_julia_code():
    assert "CUDA.reclaim()" in commands(FORMS[0].template.format(requested="3.000 GiB"))


@pytest.mark.parametrize("code", ["code 2", "code #2"])
def test_errors_of_the_driver_in_julia_get_no_advice_on_python(code):
    text = f"ERROR: LoadError: CUDA error: out of memory ({code}, ERROR_OUT_OF_MEMORY)\nStacktrace:"
    assert (single(text).dialect, single(text).framework) == ("julia", "julia")
    assert "CUDA.reclaim()" in commands(text)
    assert "python" not in commands(text)
