"""Starts SGLang on a simulated card without its compiled kernels, for the figures in docs/serving.md.

    memdiag record -q --phantom cuda:h100-80g -o sglang.pkl -- python bench/serving_sglang.py MODEL [BACKEND]
    memdiag record -q --phantom cuda:h100-80g -- python bench/serving_sglang.py MODEL triton FRACTION TOKENS

MODEL is a folder with a config.json, and BACKEND is SGLang's attention backend; default: torch_native. The compiled
kernels of SGLang 0.5.23 (sglang-kernel) need torch 2.14, so this program puts modules without content in the place of
three packages. SGLang then loads random weights and allocates its KV cache, which needs no kernel.

With FRACTION (``mem_fraction_static``) and TOKENS, the engine also serves a request of so many tokens. Its layers then
run as SGLang's own functions of PyTorch operators (``forward_native``), which allocate more than the compiled kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

REPLACED = frozenset({"sgl_kernel", "gguf", "cutlass"})


class Placeholder:
    """An object in the place of a type or a constant."""

    def __getattr__(self, name: str) -> Placeholder:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder()

    def __call__(self, *_: Any, **__: Any) -> Placeholder:
        """Returns another placeholder."""
        return Placeholder()


class WithoutContent(ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__.startswith("cutlass") or name == "scalar_types" or name[0].isupper():
            return Placeholder()

        def kernel(*_: Any, **__: Any) -> bool:
            if name.startswith("is_"):  # a question about the card
                return False
            raise RuntimeError(f"{self.__name__}.{name} is not installed")

        return kernel


class Finder(MetaPathFinder, Loader):
    """Imports modules without content."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """Returns the specification of a module of a replaced package."""
        del path, target
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in REPLACED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Returns the module."""
        return WithoutContent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leaves the module as it is."""


sys.meta_path.insert(0, Finder())  # also in the processes that SGLang starts, which import this file


def run_natively() -> None:
    """Lets all layers run as PyTorch operators."""
    from sglang.kernels import fused_op

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.forward_native(*args, **kwargs)

    fused_op.BaseFusedOp.forward = forward


if "triton" in sys.argv:
    run_natively()  # also in the processes that SGLang starts


def main(model: str, backend: str = "torch_native", fraction: str = "", tokens: str = "0") -> None:
    """Starts the engine, serves a request of so many tokens, and ends it."""
    import sglang

    engine = sglang.Engine(
        model_path=model,
        load_format="dummy",
        attention_backend=backend,
        sampling_backend="pytorch",
        disable_cuda_graph=True,
        skip_tokenizer_init=True,
        skip_server_warmup=True,
        disable_radix_cache=True,
        log_level="info",
        mem_fraction_static=float(fraction) if fraction else None,
    )
    if int(tokens):
        prompt = list(range(100, 100 + int(tokens)))
        engine.generate(input_ids=[prompt], sampling_params={"max_new_tokens": 4, "ignore_eos": True})
        print("served")
    engine.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
