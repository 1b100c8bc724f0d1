"""cuBLAS, cuDNN and their kind: handles and workspaces that did not fit beside the framework's pool."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.findings import Fix
from memdiag.oom.model import Found, Judgement
from memdiag.oom.squeezed import Squeezed, pattern, take

FORMATS = ("cublas_cudnn",)
ANCHORS = (
    "_alloc_failed",
    "_allocation_failed",
    "cudnnalgorithmtorun",
    "dnnlibraryinitialization",
    "_insufficient_resources",
    "miopenstatusalloc",
    "availabletoallocatebuffer",
)
EXAMPLES = (
    ("cublas_cudnn", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ("cublas_cudnn", "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ("cublas_cudnn", "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution"),
)

_LIBRARY = (
    r"(?P<library>CU|HIP|ROC) (?:BLAS|BLASLT|DNN|SOLVER|SPARSE|FFT|RAND) (?:_STATUS)?"
    r" _ (?:ALLOC(?:ATION)? _FAILED | INSUFFICIENT_RESOURCES)"
)
# The name of a constant by itself is documentation or source code: a message says that something failed with it.
_FAILED = (
    r"(?:error|failed|failure|exception|handle|status|fatal|reason|returned|code \d?) \w{0,24} \\? [:=('\"`,\[\])]{1,4} (?:\d{1,3}[:,])?"
    r" | \( \d vs \. 0 \)"  # glog: "Check failed: status == CUDNN_STATUS_SUCCESS (2 vs. 0)"
)
_NAMED = _LIBRARY.replace("library", "called") + r" (?: when calling | \( cu | , \) )"
_CODE = pattern(rf"(?: (?:{_FAILED}) {_LIBRARY} | {_NAMED} ) (?: when calling [`'\"]? \w{{1,60}} )?")
_MIOPEN = pattern(r"miopenStatusAllocFailed | Memory not available to allocate buffer : {requested:bytes}")
_CONVOLUTION = pattern(r"Unable to find a valid cuDNN algorithm to run (?:the)? convolution")

_LIBRARY_INIT = pattern(r"(?:FAILED_PRECONDITION:)? DNN library initialization failed \.? (?: Look at the errors above for more details)?")

_CUDNN = Judgement(
    "workspace_or_comm",
    "medium",
    ("capacity", "unknown"),
    (
        "cuDNN found no algorithm whose workspace fits in what is free: workspaces are tried out beside what the model holds.",
        "The message has no numbers; a mismatch of cuDNN and driver can end the same way.",
    ),
)
_MIOPEN_WHY = Judgement(
    "workspace_or_comm",
    "medium",
    ("capacity", "unknown"),
    ("MIOpen tries algorithms with workspaces beside what the model holds, and less than it asked for was free.",),
)
_INIT = Judgement(
    "workspace_or_comm",
    "low",
    ("other_process", "capacity"),
    (
        "cuDNN could not be started: mostly since JAX's pool, or another process, has taken what its handle needs.",
        "A cuDNN of another version than JAX was built for ends the same way: the lines above tell.",
    ),
)
_HANDLE = Judgement(
    "workspace_or_comm",
    "medium",
    ("capacity", "unknown"),
    (
        "A library could not get memory for its handle or workspace, which it takes from the driver beside the framework's pool.",
        "No numbers are printed. An index out of range in an earlier kernel can end the same way: CUDA_LAUNCH_BLOCKING=1 would show it.",
    ),
)
_BENCHMARK = Fix(
    "Do not try out algorithms",
    "code",
    "torch.backends.cudnn.benchmark = False",
    "PyTorch with convolutions",
    "The fastest algorithm may no longer be found.",
)
_WORKSPACE = Fix(
    "Make cuBLAS's workspaces smaller",
    "env",
    "export CUBLAS_WORKSPACE_CONFIG=:16:8",
    "PyTorch on CUDA",
    "Each handle and stream has one; some matrix products get slower.",
)
_ROOM = Fix(
    "Leave room beside PyTorch's pool",
    "code",
    "torch.cuda.set_per_process_memory_fraction(0.95)",
    "PyTorch, after set_device() and before the first tensor on the device",
    "The pool gets smaller by as much.",
)
_BATCH = Fix(
    "Use a smaller batch, if PyTorch then says itself that memory is short",
    "code",
    "",
    "PyTorch",
    "Its own message has the numbers that this one lacks.",
)
_JAX_FRACTION = Fix(
    "Leave more of the card outside JAX's pool",
    "env",
    "export XLA_PYTHON_CLIENT_MEM_FRACTION=.65",
    "JAX on GPUs (default .75)",
    "Less for arrays.",
)
_JAX_GROWTH = Fix(
    "Or take memory as it is needed",
    "env",
    "export XLA_PYTHON_CLIENT_PREALLOCATE=false",
    "JAX on GPUs, where other processes use the card as well",
    "More fragmentation.",
)
_JAX = (_JAX_FRACTION, _JAX_GROWTH)
_GROWTH = Fix(
    "Let TensorFlow take memory as it needs it",
    "env",
    "export TF_FORCE_GPU_ALLOW_GROWTH=true",
    "TensorFlow, which otherwise takes nearly the whole card at the start",
    "Memory taken is not given back either.",
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _CODE.finditer(text.text):
        # "status = CUBLAS_STATUS_ALLOC_FAILED;" sets what others test: the name's place tells, not that of the words before it.
        if not text.is_code(match.start("library") if match["library"] else match.start("called")):
            cudnn = "dnn" in match[0].lower()
            framework = _framework(text, match.start())
            fixes: tuple[Fix, ...] = (
                (_GROWTH,)
                if framework == "tensorflow"
                else _JAX
                if framework == "jax"
                else (_BENCHMARK, _ROOM, _BATCH)
                if cudnn
                else (_ROOM, _BATCH, _WORKSPACE)
            )
            backend = "cuda" if (match["library"] or match["called"]).upper() == "CU" else "hip"
            yield Found(match.start(), match.end(), "cublas_cudnn", framework, backend, {}, _CUDNN if cudnn else _HANDLE, fixes)
    for match in _MIOPEN.finditer(text.text):
        framework = _framework(text, match.start())
        fixes = (_GROWTH,) if framework == "tensorflow" else (_BENCHMARK, _ROOM)
        yield Found(match.start(), match.end(), "cublas_cudnn", framework, "hip", take(match), _MIOPEN_WHY, fixes)
    for match in _LIBRARY_INIT.finditer(text.text):
        yield Found(match.start(), match.end(), "cublas_cudnn", "jax", "cuda", {}, _INIT, _JAX)
    for match in _CONVOLUTION.finditer(text.text):
        if not text.is_code(match.start()):
            yield Found(
                match.start(), match.end(), "cublas_cudnn", _framework(text, match.start()), "cuda", {}, _CUDNN, (_BENCHMARK, _ROOM)
            )


def _framework(text: Squeezed, position: int) -> str:
    """Returns whose call failed, as far as the lines around tell."""
    around = text.text[max(position - 300, 0) : position + 200].lower()
    # JAX's XLA was built in TensorFlow's tree for years: "external/org_tensorflow/tensorflow/compiler/xla/stream_executor/…".
    if any(words in around for words in ("external/xla", "/xla/stream_executor", "external/org_tensorflow", "jaxlib", "dnnlibraryinit")):
        return "jax"
    if "tensorflow" in around or "stream_executor" in around or "cuda_blas.cc" in around or "cuda_dnn.cc" in around:
        return "tensorflow"
    return "torch7" if ".lua" in around else "pytorch"
