"""Messages without numbers: errors of CUDA and THC, and PyTorch messages cut off after their first words."""

from __future__ import annotations

import pytest

from memdiag.oom.read import read_text
from tests.oom.message_forms import Form
from tests.oom.single import single

FORMS = [
    Form(
        "cuda_bare",
        (
            "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some "
            "other API call"
        ),
    ),
    Form(
        "torch_thc_old",
        "THCudaCheck FAIL file=/pytorch/torch/lib/THC/generic/THCStorage.cu line=66 error=2 : out of "
        "memory\nRuntimeError: cuda runtime error (2) "
        ": out of memory at /pytorch/torch/lib/THC/generic/THCStorage.cu:66",
    ),
]

ERROR = "RuntimeError: CUDA error: out of memory"


@pytest.mark.parametrize(
    ("above", "verdict"),
    [
        ("", "unknown"),
        ('  File "/x/torch/cuda/graphs.py", line 84, in capture_end', "workspace_or_comm"),
        (
            (
                '  File "/x/vllm/worker/model_runner.py", line 1, in capture\n  File "/x/torch/cuda/graphs.py", line '
                "84, in capture_end"
            ),
            "limit",
        ),
        ('  File "/x/vllm/device_allocator/cumem.py", line 207, in wake_up', "limit"),
        ('  File "/x/torch/utils/data/_utils/pin_memory.py", line 98, in pin_memory', "host"),
        ('  File "/x/train.py", line 3, in <module>\n    torch.cuda.set_device(rank)', "other_process"),
    ],
)
def test_the_lines_above_decide_the_verdict(above, verdict):
    assert single(f"{above}\n{ERROR}").judgement.verdict == verdict


@pytest.mark.parametrize(
    "text",
    [
        "cuda error: out of memory at /workspace/csrc/cumem_allocator.cpp:62",
        "torch.AcceleratorError: CUDA error: out of memory",
        "CUDA driver error: out of memory",
        "RuntimeError: cuda runtime error (2) : out of memory at /x/spconv/src/indice_cuda.cu:12",
        "RuntimeError: CUDA out of memory.",
        "CUDA out of memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to all",
    ],
)
def test_other_wordings_are_recognised(text):
    message = single(text)
    assert (message.dialect, message.fields) == ("cuda_bare", {})


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("RuntimeError: NPU out of memory.", "torch_npu"),
        ("HIP out of memory", "torch_hip"),
        ("RuntimeError: XPU out of memory", "torch_xpu"),
    ],
)
def test_truncated_messages_of_other_backends_are_recognised(text, dialect):
    assert single(text).dialect == dialect


def test_a_failed_check_and_its_exception_are_one_message():
    check = "THCudaCheck FAIL file=/pytorch/THC/THCGeneral.cpp line=70 error=2 : out of memory"
    raised = "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/THC/THCGeneral.cpp:70"
    assert (
        len(
            read_text(
                f'{check}\nTraceback (most recent call last):\n  File "main.py", line 3, in <module>\n{raised}'
            ).messages
        )
        == 1
    )
    assert single(raised).dialect == "torch_thc_old"
    assert single(raised.replace("error (2)", "err(2)")).dialect == "torch_thc_old"


@pytest.mark.parametrize(
    "text",
    [
        '        if "CUDA error: out of memory" in str(error):',
        '    raise RuntimeError("CUDA error: out of memory")',
        '    with pytest.raises(RuntimeError, match="CUDA error: out of memory"):',
        "    except torch.cuda.OutOfMemoryError as error:",
        "We ran into CUDA out of memory errors, so we lowered the batch size.",
    ],
)
def test_code_and_prose_that_name_the_error_are_not_messages(text):
    assert not read_text(text).messages


def test_a_failed_nvml_assertion_is_an_out_of_memory_message():
    text = (
        'RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "/x/c10/cuda/CUDACachingAllocator.cpp":838, please '
        "report a bug"
    )
    assert single(text).dialect == "cuda_bare"
