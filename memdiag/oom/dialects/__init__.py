"""Dialects: the out-of-memory messages of one system each.

A dialect is a module with

* ``FORMATS``: names of the message forms it finds (``dialect`` in the JSON);
* ``ANCHORS``: short texts, in lower case and without spaces; each of its messages contains at least one, and other text
  is skipped;
* ``EXAMPLES``: pairs of a form and an example message, for tests and documentation;
* ``find(text)``: yields the messages in a squeezed text, as ``memdiag.oom.model.Found``;

and, if it needs them,

* ``NAMES``: names of its frameworks for people, by ``Found.framework``; ``memdiag.oom.frameworks`` has those that
  several dialects use;
* ``WORDS``: words that its messages contain instead of those of ``memdiag.oom.gate.WORDS``;
* texts in English and Chinese: a separate catalogue (``memdiag/messages/oom_x.json``, with ``phrase`` and
  ``LazyFix``), or ``TEXTS`` in the module itself (with ``phrase_of`` and ``LazyFix(…, texts=TEXTS)``).

The order matters for overlapping matches: the longer one wins, then the first dialect here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from memdiag.registry import Registry


class Dialect(Protocol):
    """The messages of one system; the module docstring describes the attributes."""

    FORMATS: Sequence[str]
    ANCHORS: Sequence[str]
    EXAMPLES: Sequence[tuple[str, str]]

    def find(self, text: Any) -> Iterable[Any]:
        """Yields each ``Found`` in a ``Squeezed`` text."""


DIALECTS: Registry[Dialect] = Registry(
    "dialect",
    Dialect,
    {
        "pytorch-cuda": "memdiag.oom.dialects.pytorch_cuda",
        "pytorch-xpu": "memdiag.oom.dialects.pytorch_xpu",
        "torch-npu": "memdiag.oom.dialects.torch_npu",
        "hccl": "memdiag.oom.dialects.hccl",
        "cann": "memdiag.oom.dialects.cann",
        "mindspore": "memdiag.oom.dialects.mindspore",
        "pytorch-mps": "memdiag.oom.dialects.pytorch_mps",
        "pytorch-hpu": "memdiag.oom.dialects.pytorch_hpu",
        "pytorch-malloc-async": "memdiag.oom.dialects.pytorch_malloc_async",
        "pytorch-eb": "memdiag.oom.dialects.pytorch_eb",
        "torch-thc": "memdiag.oom.dialects.torch_thc",
        "nccl": "memdiag.oom.dialects.nccl",
        "cublas-cudnn": "memdiag.oom.dialects.cublas_cudnn",
        "cuda-bare": "memdiag.oom.dialects.cuda_bare",
        "jax-xla": "memdiag.oom.dialects.jax_xla",
        "xla-tpu": "memdiag.oom.dialects.xla_tpu",
        "tensorflow": "memdiag.oom.dialects.tensorflow",
        "host-cpu-alloc": "memdiag.oom.dialects.host_cpu_alloc",
        "oom-killer": "memdiag.oom.dialects.oom_killer",
        "host-killed": "memdiag.oom.dialects.host_killed",
        "ray-host": "memdiag.oom.dialects.ray_host",
        "paddle": "memdiag.oom.dialects.paddle",
        "onnxruntime": "memdiag.oom.dialects.onnxruntime",
        "cupy": "memdiag.oom.dialects.cupy",
        "julia": "memdiag.oom.dialects.julia",
        "triton-smem": "memdiag.oom.dialects.triton_smem",
        "vllm-kv": "memdiag.oom.dialects.vllm_kv",
        "vllm-startup-free": "memdiag.oom.dialects.vllm_startup_free",
        "sglang": "memdiag.oom.dialects.sglang",
        "ggml": "memdiag.oom.dialects.ggml",
        "ollama-host": "memdiag.oom.dialects.ollama_host",
        "mlx": "memdiag.oom.dialects.mlx",
        "tensorrt": "memdiag.oom.dialects.tensorrt",
        "tensorrt-llm": "memdiag.oom.dialects.tensorrt_llm",
        "bitsandbytes": "memdiag.oom.dialects.bitsandbytes",
        "serving": "memdiag.oom.dialects.serving",
        "host-runtimes": "memdiag.oom.dialects.host_runtimes",
        "cuda-driver": "memdiag.oom.dialects.cuda_driver",
    },
    "memdiag.dialects",
)


def names_of(dialect: Dialect) -> Mapping[str, str]:
    """Returns the names of a dialect's own frameworks."""
    return getattr(dialect, "NAMES", {})


def words_of(dialect: Dialect) -> tuple[str, ...]:
    """Returns the words by which a dialect's messages are found in a long text, besides those of all dialects."""
    return tuple(getattr(dialect, "WORDS", ()))


def dialects() -> list[Dialect]:
    """Returns the modules of all dialects."""
    return list(DIALECTS.values())
