"""Runs parts of old versions of vLLM on a simulated card, for the comparison with published logs in docs/serving.md.

The wheels of these versions need torch versions of their time, so their compiled kernels do not load. Their Python code
runs, and kernels compute nothing on a simulated card anyway. This program registers operators without effect under
the names of the missing kernels; every tensor is still allocated by vLLM's code.

``worker`` runs the start of vLLM 0.6.5 for vllm#11251: its class Worker loads Llama 3.1 8B with random weights on two
cards, runs the profile, and prints vLLM's own line on the memory. It needs transformers 4.46 and the other
requirements of vLLM 0.6.5 except torch and xformers.

    memdiag record --phantom cuda:v100-32g,capability=7.5,total=15.77GiB,devices=2 -- \
        torchrun --nproc-per-node 2 bench/serving_activation.py worker WHEEL MODEL

Without NVLink between all cards, NCCL uses fewer channels than memdiag assumes for a V100, and takes less memory: set
``NCCL_MAX_NCHANNELS`` to 4 or 6.

``sampler`` runs the sampler of vLLM 0.10.0 for vllm#21489.

    memdiag record --phantom cuda:h200,total=178.36GiB -- python bench/serving_activation.py sampler WHEEL

WHEEL is the folder of an unpacked wheel, and MODEL is a folder with the config.json of Llama 3.1 8B.
"""

from __future__ import annotations

import argparse
import os
import sys
import types
from importlib import import_module
from typing import Any

import torch

GIB = 1 << 30
KERNELS = {
    "_C": (
        "silu_and_mul(Tensor! out, Tensor input) -> ()",
        "rms_norm(Tensor! out, Tensor input, Tensor weight, float epsilon) -> ()",
        "fused_add_rms_norm(Tensor! input, Tensor! residual, Tensor weight, float epsilon) -> ()",
        "rotary_embedding(Tensor positions, Tensor! query, Tensor! key, int head_size, Tensor cache, bool neox) -> ()",
    ),
}
# Of vllm#21489: requests and tokens of a batch are the defaults of the class LLM of 0.10.0 on a large card
NUM_REQUESTS, NUM_TOKENS, HIDDEN, VOCABULARY = 1024, 16384, 2560, 262_208
NUM_IMAGES, IMAGE_SIDE, TOKENS_PER_IMAGE = 64, 896, 256
# Of vllm#11251
LONGEST_REQUEST = 40_000


def define_kernels() -> list[torch.library.Library]:
    """Registers operators without effect for vLLM's kernels, and returns them; they live as long as the list."""
    sys.modules["vllm._C"] = types.ModuleType("vllm._C")  # vLLM imports its kernels by this name
    libraries = []
    for namespace, schemas in KERNELS.items():
        library = torch.library.Library(namespace, "FRAGMENT")
        for schema in schemas:
            library.define(schema)
            library.impl(schema.partition("(")[0], lambda *_: None, "CompositeExplicitAutograd")
        libraries.append(library)
    return libraries


def replace_xformers() -> None:
    """Puts a module in the place of xformers whose attention allocates the output and nothing else."""
    names = ("xformers", "xformers.ops", "xformers.ops.fmha", "xformers.ops.fmha.attn_bias")
    modules = {name: types.ModuleType(name) for name in names}
    for name, module in modules.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(modules[parent], last, module)
    modules["xformers.ops"].memory_efficient_attention_forward = lambda query, *_, **__: torch.empty_like(query)

    class Bias:
        @classmethod
        def from_seqlens(cls, *_: Any, **__: Any) -> Bias:
            return cls()

        def make_local_attention(self, *_: Any) -> Bias:
            return self

    for name in ("AttentionBias", "BlockDiagonalCausalMask", "BlockDiagonalMask", "LowerTriangularMaskWithTensorBias"):
        setattr(modules["xformers.ops.fmha.attn_bias"], name, type(name, (Bias,), {}))
    sys.modules.update(modules)


def run_worker(model: str) -> None:
    """Runs vLLM 0.6.5 until it knows the number of KV blocks; torchrun starts one process for each card."""
    replace_xformers()
    triton_cache = import_module("triton.runtime.cache")
    for name in ("default_cache_dir", "default_dump_dir", "default_override_dir"):  # gone from newer Triton
        if not hasattr(triton_cache, name):
            setattr(triton_cache, name, lambda: "")
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.models import registry
    from vllm.worker.worker import Worker

    # A new process, in which vLLM inspects the model, would not have the operators
    registry._run_in_subprocess = lambda inspect: inspect()  # noqa: SLF001
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    config = EngineArgs(
        model=model,
        skip_tokenizer_init=True,
        load_format="dummy",
        dtype="half",
        tensor_parallel_size=world,
        max_model_len=LONGEST_REQUEST,
        enable_chunked_prefill=False,
        enforce_eager=True,
        distributed_executor_backend="mp",
    ).create_engine_config()
    with set_current_vllm_config(config):
        worker = Worker(config, rank, rank, "env://", is_driver_worker=rank == 0)
        worker.init_device()
        communicators = worker.init_gpu_memory - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved()
        worker.load_model()
        blocks, _ = worker.determine_num_available_blocks()
    slack = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    outside = worker.init_gpu_memory - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved()
    print(
        f"rank {rank}: outside PyTorch {outside / GIB:.3f} GiB, of which communicators at the start "
        f"{communicators / GIB:.3f} GiB; reserved, not allocated {slack / GIB:.3f} GiB",
        flush=True,
    )
    print(f"rank {rank}: {blocks} KV blocks of {worker.get_cache_block_size_bytes()} bytes", flush=True)


def run_sampler() -> None:
    """Prints the peak of the sampler of vLLM 0.10.0, alone and with what its profile run keeps meanwhile."""
    from vllm.v1.sample.logits_processor import LogitsProcessorManager
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.sample.sampler import Sampler

    device = torch.device("cuda")
    torch.cuda.init()
    for is_alone in (True, False):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        kept = [] if is_alone else profile_tensors(device)
        _sample(Sampler(), SamplingMetadata, LogitsProcessorManager(), device)
        peak = torch.cuda.max_memory_allocated() - before
        print(f"{'the sampler alone' if is_alone else 'with the tensors of the profile run'}: {peak / GIB:.3f} GiB")
        del kept


def profile_tensors(device: torch.device) -> list[torch.Tensor]:
    """Returns the tensors of the profile run that are live while the sampler runs."""
    kwargs = {"dtype": torch.bfloat16, "device": device}
    return [
        torch.empty(NUM_IMAGES, 3, IMAGE_SIDE, IMAGE_SIDE, **kwargs),
        torch.empty(NUM_IMAGES, TOKENS_PER_IMAGE, HIDDEN, **kwargs),
        torch.empty(NUM_TOKENS, HIDDEN, **kwargs),
    ]


def _sample(sampler: Any, metadata_of: Any, processors: Any, device: torch.device) -> None:
    hidden = torch.empty(NUM_REQUESTS, HIDDEN, dtype=torch.bfloat16, device=device)
    random = torch.rand_like(hidden)
    logits = torch.empty(NUM_REQUESTS, VOCABULARY, dtype=torch.bfloat16, device=device)

    def filled(value: float) -> torch.Tensor:
        return torch.full((NUM_REQUESTS,), value, device=device)

    metadata = metadata_of(
        temperature=filled(0.5),
        all_greedy=False,
        all_random=False,
        top_p=filled(0.9),
        top_k=filled(VOCABULARY - 1),
        generators={},
        max_num_logprobs=None,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=filled(0.1),
        presence_penalties=filled(0.1),
        repetition_penalties=filled(0.1),
        output_token_ids=[[] for _ in range(NUM_REQUESTS)],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=processors,
    )
    with torch.inference_mode():
        sampler(logits=logits, sampling_metadata=metadata)
    del hidden, random  # live until here, as in _dummy_sampler_run and its caller


def main() -> None:
    """Runs one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("worker", "sampler"))
    parser.add_argument("wheel", metavar="WHEEL")
    parser.add_argument("model", metavar="MODEL", nargs="?", default="")
    given = parser.parse_args()
    sys.path.insert(0, given.wheel)
    kernels = define_kernels()
    if given.part == "worker":
        run_worker(given.model)
    else:
        run_sampler()
    del kernels


if __name__ == "__main__":
    main()
