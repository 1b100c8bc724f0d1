"""Trains one rank of a Megatron-core GPT that a configuration file describes: the recipe ``megatron``.

The configuration is that of a model of transformers with rotary embeddings, RMS norms and gated layers. The Python that
runs it needs torch and megatron-core, not memdiag. Layers are Megatron-core's own, without Transformer Engine.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.moe import moe_utils

KNOWN = ("llama", "mistral", "mixtral", "olmoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe")
VOCABULARY_UNIT = 128  # Megatron-LM pads the vocabulary to a multiple of this and of the tensor-parallel size


def options() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("cuda", "npu"), default="cuda")
    parser.add_argument("--model", type=Path, required=True, help="config.json, or a folder with it")
    parser.add_argument("--recipe", choices=("megatron",), default="megatron")
    parser.add_argument("--tp", type=int, default=1, help="ranks that divide a layer; above 1, also the sequence")
    parser.add_argument("--pp", type=int, default=1, help="pipeline stages")
    parser.add_argument("--ep", type=int, default=1, help="ranks that divide the experts")
    parser.add_argument("--mbs", type=int, default=1, help="sequences in a micro-batch")
    parser.add_argument("--micro", type=int, help="micro-batches in a step; default: twice the pipeline stages")
    parser.add_argument("--seq", type=int, default=4096, help="tokens of a sequence")
    parser.add_argument("--ckpt", choices=("none", "selective", "full"), default="none", help="recomputation")
    parser.add_argument("--attention", choices=("sdpa", "unfused"), default="sdpa")
    parser.add_argument("--optimizer", choices=("adam", "distributed"), default="distributed")
    parser.add_argument("--capacity", type=float, help="pad each expert to this multiple of the mean number of tokens")
    parser.add_argument("--layers", type=int, help="instead of the configuration's number of layers")
    parser.add_argument("--steps", type=int, default=2)
    return parser.parse_args()


def config_of(given: argparse.Namespace, model_config: dict[str, Any]) -> TransformerConfig:
    """Returns Megatron-core's configuration of a model of transformers."""
    kind = model_config["model_type"]
    if kind not in KNOWN:
        raise SystemExit(f"{given.model}: the recipe megatron trains {', '.join(KNOWN)}, not {kind}")
    recompute: dict[str, Any] = {"recompute_granularity": None if given.ckpt == "none" else given.ckpt}
    if given.ckpt == "full":
        recompute |= {"recompute_method": "uniform", "recompute_num_layers": 1}
    return TransformerConfig(
        num_layers=given.layers or model_config["num_hidden_layers"],
        hidden_size=model_config["hidden_size"],
        num_attention_heads=model_config["num_attention_heads"],
        num_query_groups=model_config.get("num_key_value_heads") or model_config["num_attention_heads"],
        kv_channels=model_config.get("head_dim") or model_config["hidden_size"] // model_config["num_attention_heads"],
        ffn_hidden_size=model_config["intermediate_size"],
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        normalization="RMSNorm",
        layernorm_epsilon=model_config.get("rms_norm_eps", 1e-6),
        qk_layernorm=kind.startswith("qwen3"),
        add_bias_linear=False,
        add_qkv_bias=kind.startswith("qwen2") or bool(model_config.get("attention_bias")),
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        autocast_dtype=torch.bfloat16,
        tensor_model_parallel_size=given.tp,
        pipeline_model_parallel_size=given.pp,
        expert_model_parallel_size=given.ep,
        sequence_parallel=given.tp > 1,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        bias_dropout_fusion=False,
        apply_rope_fusion=False,
        **recompute,
        **experts_of(given, model_config),
    )


def experts_of(given: argparse.Namespace, model_config: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a mixture of experts; none for a dense model."""
    count = model_config.get("num_experts") or model_config.get("num_local_experts")
    if not count:
        return {}
    found = {
        "num_moe_experts": count,
        "moe_ffn_hidden_size": model_config.get("moe_intermediate_size") or model_config["intermediate_size"],
        "moe_shared_expert_intermediate_size": model_config.get("shared_expert_intermediate_size"),
        "moe_router_topk": model_config["num_experts_per_tok"],
        "moe_token_dispatcher_type": "alltoall",
    }
    if given.capacity:
        found |= {"moe_expert_capacity_factor": given.capacity, "moe_pad_expert_input_to_capacity": True}
    return found


class FusedAttention(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    """Attention by PyTorch's fused kernels, in the place of Megatron-core's own, which keeps the matrix of scores."""

    def __init__(self, config: TransformerConfig, *_: Any, **__: Any) -> None:
        super().__init__()
        self.is_grouped = config.num_query_groups != config.num_attention_heads

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """Returns the attention of tensors of the shape (sequence, batch, heads, width of a head)."""
        first, second, third = (each.permute(1, 2, 0, 3) for each in (query, key, value))
        found = torch.nn.functional.scaled_dot_product_attention(
            first, second, third, is_causal=True, enable_gqa=self.is_grouped
        )
        return found.permute(2, 0, 1, 3).reshape(*query.shape[:2], -1)


class Norm(torch.nn.RMSNorm):  # type: ignore[misc]  # torch has no types here
    """An RMS norm that allows the sequence to be divided, unlike Megatron-core's own without Transformer Engine."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-6, **_: Any) -> None:
        super().__init__(hidden_size, eps)
        self.weight.sequence_parallel = config.sequence_parallel


def layers_of(given: argparse.Namespace, config: TransformerConfig) -> Any:
    """Returns the specification of the layers of this pipeline stage."""
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm")
    spec.layer_norm = Norm
    for layer in spec.layer_specs:
        inside = layer.submodules
        inside.input_layernorm = inside.pre_mlp_layernorm = Norm
        attention = inside.self_attention.submodules
        if config.qk_layernorm:
            attention.q_layernorm = attention.k_layernorm = Norm
        if given.attention == "sdpa":
            attention.core_attention = FusedAttention
    return spec


def build(given: argparse.Namespace) -> tuple[Any, Any, int]:
    """Returns the model of this rank, its optimizer, and the size of the vocabulary."""
    model_config = json.loads((given.model / "config.json" if given.model.is_dir() else given.model).read_text())
    # megatron-core 0.16 does not define it if Transformer Engine is not installed
    vars(moe_utils).setdefault("te_general_gemm", None)
    config = config_of(given, model_config)
    unit = VOCABULARY_UNIT * given.tp
    vocabulary = -(-model_config["vocab_size"] // unit) * unit
    inside = GPTModel(
        config,
        layers_of(given, config),
        vocab_size=vocabulary,
        max_sequence_length=given.seq,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        position_embedding_type="rope",
        share_embeddings_and_output_weights=bool(model_config.get("tie_word_embeddings")),
    )
    is_divided = given.optimizer == "distributed"
    spread = DistributedDataParallelConfig(
        use_distributed_optimizer=is_divided, overlap_grad_reduce=is_divided, grad_reduce_in_fp32=True
    )
    model = DistributedDataParallel(config, spread, inside.to(given.backend).bfloat16())
    config.finalize_model_grads_func = finalize_model_grads
    settings = OptimizerConfig(
        optimizer="adam",
        lr=1e-4,
        bf16=True,
        params_dtype=torch.bfloat16,
        use_distributed_optimizer=is_divided,
        clip_grad=1.0,
    )
    optimizer = get_megatron_optimizer(settings, [model])
    config.grad_scale_func = optimizer.scale_loss
    return model, optimizer, vocabulary


def loss_of(output: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Returns the mean loss, as Megatron-core's schedules expect it."""
    loss = output.float().mean()
    return loss, {"loss": loss.detach()}


def main() -> None:
    """Trains for a few steps."""
    given = options()
    if given.backend == "npu":
        import torch_npu  # noqa: F401 - adds the device
    torch.distributed.init_process_group("nccl" if given.backend == "cuda" else "hccl")
    parallel_state.initialize_model_parallel(given.tp, given.pp, expert_model_parallel_size=given.ep)
    model_parallel_cuda_manual_seed(1)
    model, optimizer, _ = build(given)

    def forward(_: Any, module: Any) -> tuple[Any, Any]:
        ids = torch.zeros(given.mbs, given.seq, dtype=torch.long, device=given.backend)
        places = torch.arange(given.seq, device=given.backend).expand(given.mbs, -1)
        mask = None
        if given.attention == "unfused":
            whole = torch.ones(given.seq, given.seq, dtype=torch.bool, device=given.backend)
            mask = torch.triu(whole, 1)[None, None]
        return module(ids, places, mask, labels=ids), loss_of

    for _ in range(given.steps):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        get_forward_backward_func()(
            forward_step_func=forward,
            data_iterator=None,
            model=[model],
            num_microbatches=given.micro or 2 * given.pp,
            seq_length=given.seq,
            micro_batch_size=given.mbs,
            decoder_seq_length=given.seq,
            forward_only=False,
        )
        optimizer.step()


if __name__ == "__main__":
    main()
