from __future__ import annotations

from memdiag.oom.read import read_text
from tests.oom.message_forms import Form
from tests.oom.single import single

FORMS = [
    Form("tensorrt", "RuntimeError: Executor creation failed due to insufficient GPU memory."),
    Form(
        "tensorrt",
        (
            "RuntimeError: [TensorRT-LLM][ERROR] CUDA runtime error in error: out of memory "
            "(/b/tensorrt_llm/runtime/ipcUtils.cpp:51)"
        ),
    ),
]


def test_a_failed_executor_creation_advises_fewer_tokens():
    message = single("[03/04/2025-05:06:07] [TRT-LLM] [E] Executor creation failed due to insufficient GPU memory.")
    assert (message.framework, message.judgement.verdict) == ("tensorrt-llm", "capacity")
    assert "--max_num_tokens" in message.findings[0].fixes[0].change


def test_a_following_pytorch_message_with_sizes_takes_precedence():
    message = single(
        "RuntimeError: Executor creation failed due to insufficient GPU memory.\n\nThe following component could not "
        "be created: KV cache\n"
        "Exception: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity of 31.50 GiB of which "
        "512.00 MiB is free. Including non-PyTorch memory, this process has 30.98 GiB memory in use. Of the allocated "
        "memory 30.10 GiB is allocated by PyTorch."
    )
    assert message.dialect == "torch_cuda_21"


def test_an_engine_that_does_not_fit_is_capacity():
    size = 31_474_836_480
    message = single(
        "[TensorRT-LLM][INFO] Loaded engine size: 30016 MiB\n"
        "[TensorRT-LLM][ERROR] [defaultAllocator.cpp::allocate::29] Error Code 1: Cuda Runtime (out of memory)\n"
        f"[TensorRT-LLM][WARNING] Requested amount of GPU memory ({size} bytes) could not be allocated.\n"
        f"[TensorRT-LLM][ERROR] [deserialize.cpp::load::560] Error Code 2: OutOfMemory (Requested size was {size} "
        "bytes.)"
    )
    assert (message.judgement.verdict, message.fields) == ("capacity", {"requested_bytes": size})
    assert "--tp_size" in message.findings[0].fixes[0].change


def test_similar_errors_of_other_programs_are_not_of_tensorrt_llm():
    assert all(
        message.framework != "tensorrt-llm"
        for message in read_text("CUDA runtime error in copy: out of memory").messages
    )
