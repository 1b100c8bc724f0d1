"""``memdiag.serving.shapes`` agrees with the models that transformers and vLLM build (reports/serve-fit.json)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memdiag.errors import MemdiagError
from memdiag.serving.shapes import shapes_of

ROOT = Path(__file__).parents[2]
MODELS = json.loads((Path(__file__).parent / "models" / "public.json").read_text(encoding="utf-8"))
BUILT = json.loads((ROOT / "reports" / "serve-fit.json").read_text(encoding="utf-8"))
TIED = {"Mistral-Small-3.1-24B"}  # by transformers 5, although the decoder's configuration and the checkpoint do not
# Larger deviations of weights: GPTQ experts of 768 that eight cards divide unevenly, and tables of rotary embeddings
# that vLLM leaves out because it runs the model of transformers
WEIGHTS = {"Qwen3-30B-A3B-GPTQ": 0.07, "SmolLM3-3B": 0.022, "Seed-OSS-36B": 0.015}
LLAMA = MODELS["Llama-3.1-8B"]
EXPERTS = MODELS["Qwen3-30B-A3B"]


def bytes_of_part(config, part, **quantization):
    """Returns the mean bytes of a number of a part in a quantized model."""
    shapes = shapes_of({**config, "quantization_config": quantization})
    found = [one for one in shapes.parameters if one.part == part]
    return sum(one.num * shapes.quantization.bytes_of(one) for one in found) / sum(one.num for one in found)


@pytest.mark.parametrize("name", sorted(set(MODELS) - TIED))
def test_weights_and_requests_agree_with_transformers_and_vllm(name):
    if MODELS[name].get("is_encoder_decoder"):
        with pytest.raises(MemdiagError):
            shapes_of(MODELS[name])
        return
    shapes = shapes_of(MODELS[name])
    assert shapes.num_parameters == pytest.approx(BUILT[name]["count"]["parameters"], rel=0.0002)
    for tp, real in BUILT[name]["build"].items():
        if tp == "error":  # vLLM does not build this model on the device "meta"
            continue
        assert shapes.can_divide(int(tp)) == ("error" not in real)
        if "error" in real:
            continue
        weights = shapes.weight_bytes(int(tp)) + shapes.table_bytes
        assert weights == pytest.approx(real["weight_bytes"], rel=WEIGHTS.get(name, 0.01))
        each = shapes.request_bytes(real["longest"], int(tp), shapes.cache_bytes, 8192)
        assert (40 << 30) / each == pytest.approx(real["requests"], rel=0.002)


def test_a_method_quantizes_only_projections():
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    for part in ("attention", "mlp"):
        assert bytes_of_part(LLAMA, part, **awq) == (4 + 20 / 128) / 8
    for part in ("embedding", "head", "norm"):
        assert bytes_of_part(LLAMA, part, **awq) == 2
    assert bytes_of_part(LLAMA, "head", quant_method="gptq", bits=8, group_size=-1, lm_head=True) == 1
    assert bytes_of_part(EXPERTS, "router", **awq) == 2
    assert bytes_of_part(EXPERTS, "experts", quant_method="mxfp4") == 4.25 / 8
    assert bytes_of_part(EXPERTS, "attention", quant_method="mxfp4") == 2


@pytest.mark.parametrize(
    ("method", "size"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, 0.5166),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, 0.5625),
        ({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}, 1),
        ({"quant_method": "fbgemm_fp8"}, 1),
        ({"quant_method": "unheard-of"}, 2),
    ],
)
def test_bytes_of_a_number_by_method(method, size):
    assert bytes_of_part(LLAMA, "mlp", **method) == pytest.approx(size, rel=0.001)


def test_modules_that_a_checkpoint_leaves_in_16_bits():
    named = [f"model.layers.{layer}.self_attn.{name}_proj" for layer in range(24) for name in "qkvo"]
    fp8 = {"quant_method": "fp8", "modules_to_not_convert": [*named, "model.layers.0.mlp.gate"]}
    assert bytes_of_part(EXPERTS, "attention", **fp8) == 1.5  # 24 of 48 layers
    assert bytes_of_part(EXPERTS, "experts", **fp8) == 1  # the router's name is the beginning of a projection's
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 32, "symmetric": True, "type": "int"}}
    packed = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}
    assert bytes_of_part(EXPERTS, "experts", **packed, ignore=["re:.*self_attn.*"]) == 4.5 / 8
    assert bytes_of_part(EXPERTS, "attention", **packed, ignore=["re:.*self_attn.*"]) == 2


def test_the_checkpoint_can_ask_for_a_cache_of_8_bits():
    scheme = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    assert shapes_of({**LLAMA, "quantization_config": scheme}).cache_bytes == 1
    assert shapes_of({**LLAMA, "torch_dtype": "float32"}).cache_bytes == 2  # engines cast to 16 bits


def test_sglang_keeps_all_tokens_of_layers_with_a_window():
    mistral = shapes_of(MODELS["Mistral-7B-v0.1"])
    assert mistral.request_bytes(32_768, 1, 2, 8192, "sglang") == 32_768 * (128 << 10)
    openai = shapes_of(MODELS["gpt-oss-20b"])  # with a pool of 80 % for these layers
    assert openai.request_bytes(1000, 1, 2, 8192, "sglang") == 1000 * 2048 * (12 + 0.8 * 12)


def test_values_that_a_configuration_leaves_out_are_those_of_its_class():
    left_out = {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}}
    assert shapes_of(left_out).num_parameters == pytest.approx(6.74e9, rel=0.001)
    window = {**MODELS["Mistral-7B-v0.1"]}
    del window["sliding_window"]
    assert shapes_of(window).cache.window == 4096
    assert set(shapes_of({**window, "sliding_window": None}).cache.mixers) == {"full"}


def test_projections_of_latent_attention_are_copied_if_they_are_quantized():
    fp8 = shapes_of(MODELS["DeepSeek-V3"])
    plain = shapes_of({key: value for key, value in MODELS["DeepSeek-V3"].items() if key != "quantization_config"})
    size = 61 * 128 * 512 * (128 + 128) * 2
    assert [fp8.absorbed_bytes(tp, "vllm") for tp in (1, 8)] == [size, size // 8]
    assert [plain.absorbed_bytes(1, engine) for engine in ("vllm", "sglang")] == [0, size]
    assert shapes_of(LLAMA).absorbed_bytes(1, "sglang") == 0


def test_a_projection_that_a_method_leaves_in_16_bits_is_not_copied():
    method = {"quant_method": "fp8", "modules_to_not_convert": ["kv_b_proj"]}
    assert shapes_of({**MODELS["DeepSeek-V3"], "quantization_config": method}).absorbed_bytes(1, "vllm") == 0
