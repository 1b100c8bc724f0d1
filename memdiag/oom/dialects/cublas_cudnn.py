"""cuBLAS, cuDNN and similar libraries: handles and workspaces that did not fit outside the framework's pool."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase

FORMATS = ("cublas_cudnn",)
NAMES = {"torch7": "Torch 7"}
ANCHORS = (
    "_alloc_failed",
    "_allocation_failed",
    "cudnnalgorithmtorun",
    "dnnlibraryinitialization",
    "_insufficient_resources",
    "miopenstatusalloc",
    "availabletoallocatebuffer",
    "create(handle)",
)
WORDS = ("algorithm to run", "create(handle)")
EXAMPLES = (
    ("cublas_cudnn", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ("cublas_cudnn", "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ("cublas_cudnn", "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution"),
)

_LIBRARY = (
    r"(?P<library>CU|HIP|ROC) (?:BLAS|BLASLT|DNN|SOLVER|SPARSE|FFT|RAND) (?:_STATUS)?"
    r" _ (?:ALLOC(?:ATION)? _FAILED | INSUFFICIENT_RESOURCES)"
)
# A constant's name alone is documentation or source code: a message also says that something failed.
_FAILED = (
    r"(?:error|failed|failure|exception|handle|status|fatal|reason|returned|code \d?) \w{0,24} \\? [:=('\"`,\[\])]{1,4}"
    r" (?:\d{1,3}[:,])?"
    r" | failed with status"  # CTranslate2
    r" | \( \d vs \. 0 \)"  # glog: "Check failed: status == CUDNN_STATUS_SUCCESS (2 vs. 0)"
)
_NAMED = _LIBRARY.replace("library", "called") + r" (?: when calling | \( cu | , \) )"
_CODE = pattern(rf"(?: (?:{_FAILED}) {_LIBRARY} | {_NAMED} ) (?: when calling [`'\"]? \w{{1,60}} )?")
_MIOPEN = pattern(r"miopenStatusAllocFailed | Memory not available to allocate buffer : {requested:bytes}")
# A handle needs a little device memory, and the library reports a lack of it as another error.
_OPENING = pattern(
    r"(?: (?:CUBLAS|CUSOLVER|CUSPARSE)_STATUS_(?:NOT_INITIALIZED|INTERNAL_ERROR) | cusolver error : [17] )"
    r" ,? when calling [`'\"]? cu\w{3,20}? Create \( handle \) [`'\"]?"
)
# After these errors, every later call fails.
_BROKEN = re.compile(r"device-sideassert|Assertion[`'\"]|illegalmemoryaccess|misalignedaddress", re.IGNORECASE)
_BEFORE = 4000
_CONVOLUTION = pattern(r"Unable to find a valid cuDNN algorithm to run (?:the)? convolution")

_LIBRARY_INIT = pattern(
    r"(?:FAILED_PRECONDITION:)? DNN library initialization failed \.? (?: Look at the errors above for more details)?"
)


def _cudnn() -> Judgement:
    return Judgement(
        "workspace_or_comm",
        "medium",
        ("capacity", "unknown"),
        (
            phrase("oom_libraries.why.cudnn"),
            phrase("oom_libraries.why.cudnn.driver"),
        ),
    )


def _miopen_why() -> Judgement:
    return Judgement(
        "workspace_or_comm",
        "medium",
        ("capacity", "unknown"),
        (phrase("oom_libraries.why.miopen"),),
    )


def _init() -> Judgement:
    return Judgement(
        "workspace_or_comm",
        "low",
        ("other_process", "capacity"),
        (
            phrase("oom_libraries.why.init"),
            phrase("oom_libraries.why.init.version"),
        ),
    )


def _handle() -> Judgement:
    return Judgement(
        "workspace_or_comm",
        "medium",
        ("capacity", "unknown"),
        (
            phrase("oom_libraries.why.handle"),
            phrase("oom_libraries.why.handle.async"),
        ),
    )


_WHO = LazyFix("oom_shared.who", "flag", "nvidia-smi")
_BLOCKING = LazyFix("oom_torch.blocking", "env", "export CUDA_LAUNCH_BLOCKING=1", {"program": "CUDA"})
_BENCHMARK = LazyFix("oom_libraries.benchmark", "code", "torch.backends.cudnn.benchmark = False")
_WORKSPACE = LazyFix("oom_libraries.workspace", "env", "export CUBLAS_WORKSPACE_CONFIG=:16:8")
_ROOM = LazyFix("oom_nccl.room", "code", "torch.cuda.set_per_process_memory_fraction(0.95)")
_BATCH = LazyFix("oom_shared.batch", "code", "", when="oom_libraries.batch.when", caveat="oom_libraries.batch.caveat")
_JAX_FRACTION = LazyFix("oom_libraries.jax-fraction", "env", "export XLA_PYTHON_CLIENT_MEM_FRACTION=.65")
_EIGHT_BITS = LazyFix(
    "oom_cuda.ctranslate2",
    "code",
    'WhisperModel(name, device="cuda", compute_type="int8_float16")',
    caveat="oom_shared.accuracy",
)
_JAX_GROWTH = LazyFix("oom_libraries.jax-growth", "env", "export XLA_PYTHON_CLIENT_PREALLOCATE=false")
_JAX = (_JAX_FRACTION, _JAX_GROWTH)
_GROWTH = LazyFix("oom_libraries.tf-growth", "env", "export TF_FORCE_GPU_ALLOW_GROWTH=true")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _CODE.finditer(text.text):
        # "status = CUBLAS_STATUS_ALLOC_FAILED;" sets a value that others test: the position of the name decides, not of
        # the words before it.
        if not text.is_code(match.start("library") if match["library"] else match.start("called")):
            cudnn = "dnn" in match[0].lower()
            framework = _framework(text, match.start())
            fixes: tuple[LazyFix, ...] = (
                (_GROWTH,)
                if framework == "tensorflow"
                else _JAX
                if framework == "jax"
                else (_EIGHT_BITS, _BATCH)
                if framework == "ctranslate2"
                else (_BENCHMARK, _ROOM, _BATCH)
                if cudnn
                else (_ROOM, _BATCH, _WORKSPACE)
            )
            backend = "cuda" if (match["library"] or match["called"]).upper() == "CU" else "hip"
            yield Found(
                match.start(),
                match.end(),
                "cublas_cudnn",
                framework,
                backend,
                {},
                _cudnn() if cudnn else _handle(),
                fixes,
            )
    for match in _MIOPEN.finditer(text.text):
        framework = _framework(text, match.start())
        fixes = (_GROWTH,) if framework == "tensorflow" else (_BENCHMARK, _ROOM)
        yield Found(match.start(), match.end(), "cublas_cudnn", framework, "hip", take(match), _miopen_why(), fixes)
    for match in _LIBRARY_INIT.finditer(text.text):
        yield Found(match.start(), match.end(), "cublas_cudnn", "jax", "cuda", {}, _init(), _JAX)
    for match in _OPENING.finditer(text.text):
        broken = _BROKEN.search(text.text, max(match.start() - _BEFORE, 0), match.end())
        if not text.is_code(match.start()) and not broken:
            reasons = (phrase("oom_libraries.why.opening"), phrase("oom_libraries.why.handle.async"))
            judgement = Judgement("workspace_or_comm", "low", ("unknown", "other_process", "capacity"), reasons)
            yield Found(
                match.start(), match.end(), "cublas_cudnn", "pytorch", "cuda", {}, judgement, (_WHO, _ROOM, _BLOCKING)
            )
    for match in _CONVOLUTION.finditer(text.text):
        if not text.is_code(match.start()):
            yield Found(
                match.start(),
                match.end(),
                "cublas_cudnn",
                _framework(text, match.start()),
                "cuda",
                {},
                _cudnn(),
                (_BENCHMARK, _ROOM),
            )


def _framework(text: Squeezed, position: int) -> str:
    """Returns the framework whose call failed, according to the surrounding lines."""
    around = text.text[max(position - 300, 0) : position + 200].lower()
    # JAX's XLA was built in TensorFlow's tree for years:
    # "external/org_tensorflow/tensorflow/compiler/xla/stream_executor/…".
    if any(
        words in around
        for words in ("external/xla", "/xla/stream_executor", "external/org_tensorflow", "jaxlib", "dnnlibraryinit")
    ):
        return "jax"
    if "tensorflow" in around or "stream_executor" in around or "cuda_blas.cc" in around or "cuda_dnn.cc" in around:
        return "tensorflow"
    if "cublasfailedwithstatus" in around:
        return "ctranslate2"
    return "torch7" if ".lua" in around else "pytorch"
