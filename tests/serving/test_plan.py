"""``memdiag.serving.plan`` computes weights and KV cache from a configuration, and estimates the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memdiag.errors import MemdiagError
from memdiag.serving.plan import ServeRequest, activation_bytes, plan, size_of_files
from memdiag.serving.rotary import table_bytes
from memdiag.serving.sglang_reserve import encoder_factor, reserve_bytes
from memdiag.serving.shapes import read_shapes, shapes_of
from memdiag.units import GIB, MIB

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}
GEMMA_4B = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 1024,
        "max_position_embeddings": 131072,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    },
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "intermediate_size": 4304},
}
DEEPSEEK = {
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "fp8"},
}


def asked(**options):
    return ServeRequest(**{"engine": "vllm", "device": "card", "card_bytes": 80 * GIB, "context_bytes": GIB} | options)


def weights(found):
    return next(part.bytes for part in found.parts if part.kind == "weights")


def test_parameters_of_public_models():
    assert shapes_of(LLAMA_8B).num_parameters == pytest.approx(8.030e9, rel=1e-3)
    assert shapes_of(GEMMA_4B).num_parameters == pytest.approx(4.30e9, rel=0.003)
    deepseek = shapes_of(DEEPSEEK)
    assert deepseek.num_parameters == pytest.approx(671e9, rel=1e-3)
    assert deepseek.weight_bytes(1) == pytest.approx(671e9 + 1.9e9, rel=1e-3)  # the vocabulary has 16 bits


def test_published_splits_of_vllm():
    """vllm#11251: weights 7.51, activations 2.53 GiB; #10511: 14.96, 1.26; #21489: activations 9.96.

    The estimate of activations was fitted to #11251 and #21489; #10511 is independent.
    """
    llama = shapes_of(LLAMA_8B)
    assert llama.weight_bytes(2) / GIB == pytest.approx(7.51, rel=0.02)
    assert activation_bytes(llama, 2, 40_000, 256) / GIB == pytest.approx(2.53, rel=0.02)
    assert 2 * llama.num_parameters / GIB == pytest.approx(14.96, rel=0.02)
    assert activation_bytes(llama, 1, 8192, 256) / GIB == pytest.approx(1.26, rel=0.04)
    assert activation_bytes(shapes_of(GEMMA_4B), 1, 16_384, 1024) / GIB == pytest.approx(9.96, rel=0.02)


def test_tables_of_rotary_embeddings_count_as_weights_on_each_card():
    """vllm#21489 loads 8.58 GiB, #11251 7.51 GiB on each of two cards."""
    gemma = shapes_of(GEMMA_4B)
    assert gemma.table_bytes == (8 + 1) * 131_072 * 256 * 2  # layers with full attention, and with a window
    assert weights(plan("gemma", gemma, asked()).plans[0]) / GIB == pytest.approx(8.58, rel=0.005)
    assert weights(plan("llama", shapes_of(LLAMA_8B), asked()).plans[1]) / GIB == pytest.approx(7.51, rel=0.001)


@pytest.mark.parametrize(
    ("rope", "rows"),
    [
        ({}, 1000),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 100}}, 1000),
        ({"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 100}}, 4000),
        ({"rope_scaling": {"type": "longrope", "original_max_position_embeddings": 100}}, 1100),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 2000),
        ({"rope_scaling": {"rope_type": "default", "mrope_section": [16, 24, 24]}}, 4000),
        ({"rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": True}}, 1000),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2}, "sliding_attention": {}}}, 3000),
        ({"partial_rotary_factor": 0.5}, 500),
    ],
)
def test_rows_of_the_tables_by_kind_of_scaling(rope, rows):
    assert table_bytes({"max_position_embeddings": 1000, **rope}, 64) == rows * 64 * 2


def test_kv_cache_of_a_token():
    llama = shapes_of(LLAMA_8B)
    assert llama.request_bytes(16, 1, 2) == 2 << 20  # a block of 16 tokens
    assert llama.request_bytes(16, 16, 2) == 256 << 10  # a KV head on each card, two cards share one
    deepseek = shapes_of(DEEPSEEK)
    assert deepseek.request_bytes(16, 8, 2) == deepseek.request_bytes(16, 1, 2) == 16 * 61 * 576 * 2


def test_layers_with_a_window_hold_no_more_than_the_window():
    gemma = shapes_of(GEMMA_4B)
    assert gemma.cache.mixers.count("full") == 5
    block = 16 * gemma.layer_token_bytes(1, 2)
    held = -(-(1023 + 2 * 2048) // 16) + 1  # the window and two batches, from any token on
    assert gemma.request_bytes(16_000, 1, 2, 2048) == 5 * block * (1000 + 6 * held)  # 29 layers in groups of 5


def test_the_report_counts_the_tokens_of_layers_without_a_window_or_state():
    assert plan("toy", shapes_of(GEMMA_4B), asked()).plans[0].token_bytes == 5 * 2 * 4 * 256 * 2
    public = json.loads((Path(__file__).parent / "models" / "public.json").read_text(encoding="utf-8"))
    hybrid = plan("toy", shapes_of(public["Nemotron-H-8B"]), asked()).plans[0]
    assert hybrid.token_bytes == 4 * 2 * 8 * 128 * 2  # 4 of 52 layers are attention


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_parts_sum_up_to_the_card(engine):
    report = plan("toy", shapes_of(LLAMA_8B), asked(engine=engine))
    assert [each.tp for each in report.plans] == [1, 2, 4, 8]
    for each in report.plans:
        assert sum(part.bytes for part in each.parts) == 80 * GIB
        assert each.flags
        assert each.longest == 131_072
        cache = next(part.bytes for part in each.parts if part.kind == "kv_cache")
        assert each.cache_flag == ("" if engine == "sglang" else f"--kv-cache-memory-bytes {cache // MIB * MIB}")


def test_more_requests_fit_with_a_smaller_cache_and_shorter_requests():
    shapes = shapes_of(LLAMA_8B)
    plain = plan("toy", shapes, asked()).plans[0]
    smaller = plan("toy", shapes, asked(kv_dtype="fp8")).plans[0]
    shorter = plan("toy", shapes, asked(context=8192)).plans[0]
    assert smaller.concurrency == pytest.approx(2 * plain.concurrency, rel=0.01)
    assert shorter.concurrency == pytest.approx(16 * plain.concurrency, rel=0.01)
    assert "--kv-cache-dtype fp8" in smaller.flags


def test_weights_that_do_not_fit_get_no_flags():
    report = plan("toy", shapes_of(DEEPSEEK), asked())
    assert [each.flags for each in report.plans] == [()] * 4
    assert report.plans[0].longest == 0


def test_the_size_of_the_files_replaces_the_computed_weights(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B), encoding="utf-8")
    index = {"metadata": {"total_size": 8 * GIB}, "weight_map": {}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert size_of_files(tmp_path) == 8 * GIB
    part = plan("toy", read_shapes(tmp_path), asked(), size_of_files(tmp_path)).plans[0].parts[1]
    assert (part.kind, part.bytes, part.basis) == ("weights", 8 * GIB + (32 << 20), "files")


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"hidden_size": 8},
        LLAMA_8B | {"layer_types": ["retention"] * 32},
        LLAMA_8B | {"mamba_d_state": 16},
        LLAMA_8B | {"is_encoder_decoder": True},
        LLAMA_8B | {"model_type": "gemma4_text"},
    ],
)
def test_other_models_are_refused_with_a_hint(config):
    with pytest.raises(MemdiagError) as caught:
        shapes_of(config)
    assert caught.value.hint


def test_a_file_that_is_no_configuration_is_refused(tmp_path):
    for text in ("[]", "{", ""):
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
        with pytest.raises(MemdiagError):
            read_shapes(tmp_path)
    with pytest.raises(MemdiagError):
        read_shapes(tmp_path / "none")


@pytest.mark.parametrize(
    ("rope", "longest"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16_384}, 131_072),
        ({"type": "linear", "factor": 2.0}, 262_144),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 131_072),
    ],
)
def test_linear_scaling_of_rotary_embeddings_allows_longer_requests(rope, longest):
    assert shapes_of({**LLAMA_8B, "rope_scaling": rope}).longest == longest


def test_sglang_leaves_what_its_own_default_leaves():
    mib = 512 + 8192 * 1.5 + 128 + 256 * 2 + 58 * 8  # 58 lengths of captured prefills
    assert reserve_bytes(80 * GIB, 1, 8192, 256) == mib * MIB
    assert reserve_bytes(80 * GIB, 1, 8192, 64, is_latent=True) == (512 + 12288 + 128 + 64 * 2 + 1536) * MIB
    assert reserve_bytes(24 * GIB, 8, 4096, 256, has_graphs=False) == (512 + 6144 + 1024) * MIB
    assert reserve_bytes(80 * GIB, 1, 2048, 1) == 10 * GIB  # the least on a large card
    (flags,) = {each.flags[1] for each in plan("toy", shapes_of(LLAMA_8B), asked(engine="sglang", sizes=(1,))).plans}
    assert flags == "--mem-fraction-static 0.83"  # 1 - 13,904 MiB / 80 GiB


def test_sglang_uses_its_own_chunks_for_small_cards():
    for size, tokens in ((16, 2048), (24, 4096), (40, 4096), (80, 8192), (192, 16384)):
        report = plan("toy", shapes_of(LLAMA_8B), asked(engine="sglang", card_bytes=size * GIB))
        assert report.max_batched_tokens == tokens
    assert plan("toy", shapes_of(LLAMA_8B), asked(card_bytes=24 * GIB)).max_batched_tokens == 8192


def test_a_vision_encoder_lowers_the_fraction_of_sglang():
    encoder = {"num_hidden_layers": 24, "hidden_size": 1024}
    seeing = {**LLAMA_8B, "vision_config": encoder}
    (plain,) = plan("toy", shapes_of(LLAMA_8B), asked(engine="sglang", sizes=(1,))).plans
    (lower,) = plan("toy", shapes_of(seeing), asked(engine="sglang", sizes=(1,))).plans
    assert (plain.flags[1], lower.flags[1]) == ("--mem-fraction-static 0.83", "--mem-fraction-static 0.78")
    assert encoder_factor(27, 1152) == pytest.approx(0.95 * (1 - 0.1 * (27 * 1152**2 / (24 * 1024**2) - 1)))
