from __future__ import annotations

import pytest

from tests.oom.message_forms import Form, integer, whole_bytes
from tests.oom.single import commands, single

FORMS = [
    Form(
        "onnxruntime",
        "[E:onnxruntime:, sequential_executor.cc:514 onnxruntime::ExecuteKernel] Non-zero status code returned while "
        "running Mul node. Name:'Mul_3' Status Message: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:376 "
        "onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size {requested}",
        {"requested": whole_bytes("requested")},
    ),
    Form(
        "onnxruntime",
        (
            "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Available memory of {free} is smaller than "
            "requested bytes of {requested}"
        ),
        {"requested": whole_bytes("requested"), "free": whole_bytes("free")},
    ),
    Form(
        "onnxruntime",
        "CUDA failure 2: out of memory ; GPU={device} ; hostname=node ; expr=cudaMalloc((void**)&p, size);",
        {"device": integer("device_index", 0, 15)},
    ),
]

_BUFFER = "Failed to allocate memory for requested buffer of size"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (f"Name:'9_nchwc' {_BUFFER} 300000000", "host"),
        (f"onnx runtime error 6: {_BUFFER} 3000000000", "other_process"),
        (f"CUDAExecutionProvider {_BUFFER} 3000000000", "capacity"),
        (f"{_BUFFER} 64000", "unknown"),
        (f"{_BUFFER} 0", "unknown"),
        (f"{_BUFFER} 9223372036854775808", "unknown"),
    ],
)
def test_provider_and_requested_size_decide_the_verdict(text, verdict):
    assert single(text).judgement.verdict == verdict


def test_the_remedy_raises_the_arena_limit_to_fit_the_request():
    text = "Available memory of 1024 is smaller than requested bytes of 8589934592"
    assert single(text).judgement.verdict == "limit"
    assert '"gpu_mem_limit": 34359738368' in commands(text)


def test_directml_reports_only_a_code():
    message = single(
        "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Conv node. Status "
        "Message: D:\\x\\DmlExecutionProvider\\src\\a.cpp(7)\\b.pyd!00007FF: (caller: 00007FF) Exception(1) tid(7) "
        "8007000E Not enough memory resources are available to complete this operation."
    )
    assert (message.framework, message.backend, message.fields) == ("onnxruntime", "directml", {})
