from __future__ import annotations

import pytest

from tests.oom.message_forms import GIB, Form, integer, unit_size
from tests.oom.single import commands, single

_LENGTH = integer("max_seq_len", 1, 1 << 22)
_SIZES = {
    "length": _LENGTH,
    "needed": unit_size("requested", "{:.2f} GiB", GIB),
    "free": unit_size("free", "{:.2f} GiB", GIB),
}
FORMS = [
    Form(
        "vllm_kv",
        "ValueError: To serve at least one request with the models's max seq len ({length}), ({needed} KV cache is "
        "needed, which is larger than the available KV cache memory ({free}). Try increasing `gpu_memory_utilization` "
        "or decreasing `max_model_len` when initializing the engine.",
        _SIZES,
    ),
    Form(
        "vllm_kv",
        "ValueError: To serve at least one request with the model's max seq len ({length}), {needed} KV cache is "
        "needed, which is larger than the available KV cache memory ({free}). Based on the available memory, the "
        "estimated maximum model length is {estimate}. Try increasing `gpu_memory_utilization` or decreasing "
        "`max_model_len` when initializing the engine.",
        {**_SIZES, "estimate": integer("estimated_max_len", 1, 1 << 22)},
    ),
    Form(
        "vllm_kv",
        "ValueError: The model's max seq len ({length}) is larger than the maximum number of tokens that can be stored "
        "in KV cache ({tokens}). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
        "initializing the engine.",
        {"length": _LENGTH, "tokens": integer("kv_tokens", 0, 1 << 22)},
    ),
    Form(
        "vllm_kv",
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
            "initializing the engine."
        ),
    ),
]


def test_the_advised_length_is_a_multiple_of_the_block_size():
    text = (
        "To serve at least one request with the model's max seq len (1000), (4.00 GiB KV cache is needed, which is "
        "larger than the available KV cache memory (1.00 GiB)."
    )
    assert "--max-model-len 240" in commands(text)


def test_the_printed_estimate_is_preferred_to_a_computed_length():
    text = (
        "To serve at least one request with the model's max seq len (1000), 4.00 GiB KV cache is needed, which is "
        "larger than the available KV cache memory (1.00 GiB). Based on the available memory, the estimated maximum "
        "model length is 512."
    )
    assert "--max-model-len 512" in commands(text)


def test_no_length_is_advised_if_no_block_fits():
    text = (
        "The model's max seq len (4096) is larger than the maximum number of tokens that can be stored in KV cache (0)."
    )
    assert "--max-model-len" not in commands(text)
    assert single(text).fields == {"max_seq_len": 4096, "kv_tokens": 0}


@pytest.mark.parametrize("what", ["sampler", "pooler"])
def test_a_failed_warm_up_advises_fewer_sequences_and_lower_utilization(what):
    text = (
        f"RuntimeError: CUDA out of memory occurred when warming up {what} with 256 dummy requests. Please try "
        "lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
    )
    assert single(text).judgement.verdict == "limit"
    assert "--max-num-seqs 64" in commands(text)
    assert "--gpu-memory-utilization 0.85" in commands(text)


def test_swap_space_is_host_memory():
    message = single(
        "RuntimeError: Too large swap space. 40.00 GiB out of the 32.00 GiB total CPU memory is allocated for the swap "
        "space."
    )
    assert (message.judgement.verdict, message.backend) == ("host", "cpu")
