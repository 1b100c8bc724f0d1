"""Frameworks of which several dialects speak: their names, and those whose tensors PyTorch's allocators serve.

A dialect declares the names of its frameworks in ``NAMES``.
"""

from __future__ import annotations

NAMES = {
    "pytorch": "PyTorch",
    "torch_npu": "PyTorch (torch_npu)",
    "jax": "JAX",
    "xla": "XLA",
    "tensorflow": "TensorFlow",
    "vllm": "vLLM",
    "triton": "Triton",
    "ollama": "Ollama",
    "tensorrt": "TensorRT",
    "cuda": "CUDA",
    "julia": "Julia",
    "ctranslate2": "CTranslate2",
    "opencv": "OpenCV",
}

ON_TORCH = frozenset({"pytorch", "torch_npu", "vllm", "sglang", "deepspeed", "nccl", "hccl", "hpu"})
