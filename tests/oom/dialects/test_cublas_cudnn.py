from __future__ import annotations

import pytest

from memdiag.oom.read import read_text
from tests.oom.message_forms import Form
from tests.oom.single import commands, single

FORMS = [
    Form("cublas_cudnn", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    Form("cublas_cudnn", "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    Form("cublas_cudnn", "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution"),
]


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        (
            (
                "E tensorflow/stream_executor/cuda/cuda_blas.cc:510] failed to create cublas handle: "
                "CUBLAS_STATUS_ALLOC_FAILED"
            ),
            "tensorflow",
        ),
        (
            (
                "E external/xla/xla/stream_executor/cuda/cuda_dnn.cc:9] Could not create cudnn handle: "
                "CUDNN_STATUS_ALLOC_FAILED"
            ),
            "jax",
        ),
        ("FAILED_PRECONDITION: DNN library initialization failed. Look at the errors above for more details.", "jax"),
        ("Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED", "pytorch"),
        (
            "cudnn/init.lua:118: Error in CuDNN: CUDNN_STATUS_ALLOC_FAILED (cudnnFindConvolutionForwardAlgorithm)",
            "torch7",
        ),
        ("RuntimeError: miopenStatusAllocFailed", "pytorch"),
        (
            "RuntimeError: CUDA error: CUSPARSE_STATUS_INSUFFICIENT_RESOURCES when calling `cusparseCreate(handle)`",
            "pytorch",
        ),
        ("RuntimeError: CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`", "pytorch"),
    ],
)
def test_framework_and_verdict_of_each_library_error(text, framework):
    message = single(text)
    assert (message.dialect, message.framework, message.judgement.verdict) == (
        "cublas_cudnn",
        framework,
        "workspace_or_comm",
    )


@pytest.mark.parametrize(
    ("before", "remedy"), [("", "cudnn.benchmark"), ("I tensorflow/core/kernels/conv_ops.cc:9] x\n", "GROWTH")]
)
def test_the_requested_size_is_read_from_miopen_errors(before, remedy):
    text = f"{before}MIOpen Error: /src/hip/handlehip.cpp:70: Memory not available to allocate buffer: 268435456"
    message = single(text)
    assert (message.backend, message.fields) == ("hip", {"requested_bytes": 268435456})
    assert remedy in commands(text)


def test_cudnn_failures_advise_disabling_benchmark_mode():
    assert "torch.backends.cudnn.benchmark = False" in commands("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED")


@pytest.mark.parametrize(
    "text",
    [
        'case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";',
        "    CUBLAS_STATUS_ALLOC_FAILED    = 3,",
        "CUDNN_STATUS_ALLOC_FAILED means that resources could not be allocated.",
    ],
)
def test_names_of_constants_are_not_a_message(text):
    assert not read_text(text).messages


def test_a_status_after_glog_numbers_or_in_lower_case_is_read():
    assert (
        single("Check failed: status == CUDNN_STATUS_SUCCESS (4 vs. 0)  CUDNN_STATUS_ALLOC_FAILED").judgement.verdict
        == "workspace_or_comm"
    )
    assert single("runtimeerror: cudnn error: cudnn_status_alloc_failed").judgement.verdict == "workspace_or_comm"


def test_ctranslate2_gets_no_settings_of_pytorch():
    text = "RuntimeError: cuBLAS failed with status CUBLAS_STATUS_ALLOC_FAILED"
    message = single(text)
    assert (message.dialect, message.framework, message.program) == ("cublas_cudnn", "ctranslate2", "CTranslate2")
    assert "compute_type" in commands(text)
    assert "torch" not in commands(text)


@pytest.mark.parametrize(
    "error",
    [
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`",
        "cusolver error: 7, when calling `cusolverDnCreate(handle)`",
    ],
)
def test_a_handle_that_was_not_created_may_have_lacked_memory(error):
    message = single(f"RuntimeError: {error}")
    assert (message.judgement.verdict, message.judgement.confidence) == ("workspace_or_comm", "low")
    assert "unknown" in message.judgement.alternatives


def test_other_errors_of_the_same_libraries_are_no_message():
    text = (
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(handle)`\n"
        "cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnSgetrf(handle)`"
    )
    assert not read_text(text).messages


def test_a_handle_after_a_failed_assertion_lacked_no_memory():
    text = (
        "/x/Indexing.cu:7: indexSelectLargeIndex: block: [1,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
    )
    assert not read_text(text).messages
