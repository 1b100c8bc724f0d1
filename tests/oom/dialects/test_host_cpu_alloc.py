from __future__ import annotations

import pytest
from hypothesis import strategies as st

from memdiag.oom.read import read_text
from tests.oom.message_forms import GIB, Form, Slot, choice, shape, whole_bytes
from tests.oom.single import commands, single

_WHOLE_GIB = Slot("requested_bytes", st.integers(0, 4000), read=lambda text, _value: int(text) * GIB)
FORMS = [
    Form(
        "host_cpu_alloc",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate {requested} bytes. Error code 12 (Cannot allocate memory)",
        {"requested": whole_bytes("requested")},
    ),
    Form(
        "host_cpu_alloc",
        (
            "RuntimeError: [enforce fail at ..\\c10\\core\\CPUAllocator.cpp:75] data. DefaultCPUAllocator: not enough "
            "memory: you tried to allocate {requested} bytes."
        ),
        {"requested": whole_bytes("requested")},
    ),
    Form(
        "host_cpu_alloc",
        (
            "RuntimeError: [enforce fail at ..\\c10\\core\\CPUAllocator.cpp:62] data. DefaultCPUAllocator: not enough "
            "memory: you tried to allocate %dGB. Buy new RAM!{gib}"
        ),
        {"gib": _WHOLE_GIB},
    ),
    Form(
        "host_cpu_alloc",
        (
            "RuntimeError: $ Torch: not enough memory: you tried to allocate {gib}GB. Buy new RAM! at "
            "/pytorch/torch/lib/TH/THGeneral.c:270"
        ),
        {"gib": _WHOLE_GIB},
    ),
    Form(
        "host_cpu_alloc",
        (
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate {size} for an array with shape {shape} and "
            "data type {dtype}"
        ),
        {
            "size": Slot("requested_bytes", st.integers(1, 999), "{}. GiB".format, lambda _text, value: value * GIB),
            "shape": shape(form="({})", comma=", "),
            "dtype": choice(
                "dtype",
                "float64",
                "float32",
                "int32",
                "uint8",
                "complex128",
                "bool",
                "object",
                "<U10",
                "datetime64[ns]",
            ),
        },
    ),
]


@pytest.mark.parametrize(
    "text",
    [
        (
            "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\nAborted (core "
            "dumped)"
        ),
        "MemoryError: std::bad_alloc",
        "RuntimeError: bad allocation",
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nMemoryError',
        "OSError: [Errno 12] Cannot allocate memory",
        "RuntimeError: unable to write to file </torch_1234_567>: No space left on device (28)",
        "OSError: [WinError 1455] 页面文件太小\uff0c无法完成操作。",
        "OpenBLAS error: Memory allocation still failed after 10 retries, giving up.",
    ],
)
def test_messages_without_numbers_are_found_once(text):
    message = single(text)
    assert (message.dialect, message.judgement.verdict, message.fields) == ("host_cpu_alloc", "host", {})


@pytest.mark.parametrize(
    "text",
    ["except MemoryError:", "the class MemoryError is raised when", "No space left on device: /home/user/model.bin"],
)
def test_code_and_prose_about_memory_are_not_messages(text):
    assert read_text(text).messages == ()


def test_a_negative_size_printed_as_unsigned_is_a_bug():
    text = (
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 18446744065119617024 bytes. Error code 12 "
        "(Cannot allocate memory)"
    )
    assert single(text).judgement.verdict == "unknown"
    assert "requested_bytes" not in single(text).fields


def test_a_printed_size_of_zero_gigabytes_means_less_than_one():
    message = single("$ Torch: not enough memory: you tried to allocate 0GB. Buy new RAM!")
    assert message.judgement.verdict == "host"
    assert "less than 1 GiB" in message.judgement.reasons[0]


def test_a_large_allocation_advises_checking_the_tensor_before_the_workers():
    text = (
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate {} bytes. Error code 12 (Cannot allocate "
        "memory)"
    )
    large, small = (single(text.format(size)).findings[0].fixes for size in (64 << 30, 64 << 20))
    assert large[0].change == "print(tensor.shape, tensor.dtype)"
    assert any("mmap=True" in fix.change for fix in large)
    assert "num_workers" in small[0].change


def test_the_posix_memalign_error_of_the_first_release_is_read():
    text = "RuntimeError: [enforce fail at CPUAllocator.cpp:{}] posix_memalign(&data, gAlignment, nbytes) == 0. 12 vs 0"
    assert (single(text.format(56)).dialect, single(text.format(56)).judgement.verdict) == ("host_cpu_alloc", "host")


def test_a_paraphrased_numpy_error_is_read():
    message = single("_ArrayMemoryError: Unable to allocate 3.5 GB for array with form (30, 40) and data type float64")
    assert message.fields == {"requested_bytes": round(3.5 * GIB), "shape": [30, 40], "dtype": "float64"}


@pytest.mark.parametrize(
    "line",
    [
        "OSError: Le fichier de pagination est insuffisant pour terminer l'op\u00e9ration. (os error 1455)",
        "SafetensorError: The paging file is too small for this operation to complete. (os error 1455)",
        'Cannot run program "cl.exe": CreateProcess error=1455, Die Auslagerungsdatei ist zu klein',
    ],
)
def test_a_paging_file_error_is_recognised_by_its_number_in_any_language(line):
    assert single(line).findings[0].fixes[0].change == "SystemPropertiesPerformance.exe"


def test_a_file_of_weights_is_not_shared_memory():
    weights = "unable to mmap 7000000000 bytes from file </data/model-00001-of-00002.bin>: Cannot allocate memory (12)"
    assert single(weights).fields == {"requested_bytes": 7000000000}
    assert commands(weights).startswith("ulimit -v")
    assert "shm-size" not in commands(weights)
    shared = "unable to mmap 7000000 bytes from file </torch_71_72_73>: Cannot allocate memory (12)"
    assert "shm-size" in commands(shared)


def test_the_operating_system_is_quoted_by_rust_too():
    message = single("OSError: Cannot allocate memory (os error 12)")
    assert (message.dialect, message.judgement.verdict) == ("host_cpu_alloc", "host")
