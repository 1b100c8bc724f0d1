"""Trains one rank of a Llama 2 with Megatron-core, on CUDA or NPU: train.py --model 7b --length 4096 --batch 4 --tp 8.

bfloat16 with float32 main parameters and gradients, Adam, no distributed optimizer, no recomputation and no sequence
parallelism unless asked for. Megatron-core's local specification writes attention out; here it is one fused operator,
as in the training that is studied: npu_fusion_attention on an NPU, scaled_dot_product_attention elsewhere; so is
RMSNorm (npu_rms_norm). The vocabulary is not padded.
"""

import argparse
import time

import torch

try:
    import torch_npu
    from torch_npu.contrib import transfer_to_npu  # noqa: F401 - Megatron-core says cuda
except ImportError:
    torch_npu = None

import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from torch.nn import functional

#        layers, width, heads, groups of keys and values, inner width
MODELS = {"7b": (32, 4096, 32, 32, 11_008), "13b": (40, 5120, 40, 40, 13_824), "70b": (80, 8192, 64, 8, 28_672)}
VOCABULARY = 32_000
LAYERS_AT_ONCE = {"recompute_granularity": "full", "recompute_method": "uniform"}
RECOMPUTED = {
    "none": {},
    "mlp": {"recompute_granularity": "selective", "recompute_modules": ["mlp"]},
    "full": {**LAYERS_AT_ONCE, "recompute_num_layers": 1},
    "pairs": {**LAYERS_AT_ONCE, "recompute_num_layers": 2},
}


def name_types_as_cuda():
    """Megatron-core compares the names of tensors' types with those of CUDA."""
    original = torch.Tensor.type

    def named(tensor, *words, **named_words):
        found = original(tensor, *words, **named_words)
        return found.replace("npu", "cuda") if isinstance(found, str) else found

    torch.Tensor.type = named


def fuse_norms():
    """Returns an RMSNorm: one operator on CUDA that keeps its input, several on an NPU with four float32 copies."""
    torch.nn.RMSNorm.forward = lambda self, x: torch_npu.npu_rms_norm(x, self.weight, epsilon=self.eps)[0]


def let_norms_see_shards():
    """Megatron-core's plain norms refuse sequence parallelism, though a part of a sequence is normed like a whole one.

    Only the gradients of their weights have to be summed over the ranks, which a mark on the weights asks for.
    """

    def new(_, config, hidden_size, eps=1e-5, **__):
        norm = torch.nn.RMSNorm(hidden_size, eps=eps)
        norm.weight.sequence_parallel = True
        return norm

    WrappedTorchNorm.__new__ = new


class FusedAttention(torch.nn.Module):
    """Attention as one operator, in place of Megatron-core's own; causal."""

    mask = None  # torch_npu's compressed form of a causal mask: one triangle of 2048 for all lengths

    def __init__(self, config, layer_number, attn_mask_type, attention_type, **_):
        super().__init__()
        self.scale = config.kv_channels**-0.5

    def forward(self, query, key, value, attention_mask=None, **_):
        length, batch, heads, size = query.shape
        if torch_npu is None:
            q, k, v = (t.permute(1, 2, 0, 3) for t in (query, key, value))
            grouped = {"enable_gqa": True} if k.shape[1] != heads else {}
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale, **grouped)
            return out.permute(2, 0, 1, 3).reshape(length, batch, heads * size)
        if FusedAttention.mask is None:
            FusedAttention.mask = torch.triu(torch.ones(2048, 2048, dtype=torch.bool, device=query.device), 1)
        q, k, v = (t.flatten(2) for t in (query, key, value))
        return torch_npu.npu_fusion_attention(
            q,
            k,
            v,
            heads,
            "SBH",
            atten_mask=FusedAttention.mask,
            scale=self.scale,
            keep_prob=1.0,
            sparse_mode=2,
        )[0]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="7b")
    for name, default in {"length": 4096, "batch": 4, "micro-batches": 4, "tp": 8, "pp": 1, "steps": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--recompute", choices=RECOMPUTED, default="none")
    parser.add_argument("--plain-norms", action="store_true", help="on an NPU: RMSNorm as PyTorch writes it out")
    parser.add_argument(
        "--sequence-parallel", action="store_true", help="what lies between layers is divided among the TP ranks"
    )
    parser.add_argument("--distributed-optimizer", action="store_true")
    return parser.parse_args()


def make(args):
    layers, width, heads, groups, inner = MODELS[args.model]
    config = TransformerConfig(
        num_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        num_query_groups=groups,
        ffn_hidden_size=inner,
        gated_linear_unit=True,
        activation_func=functional.silu,
        normalization="RMSNorm",
        add_bias_linear=False,
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        autocast_dtype=torch.bfloat16,
        tensor_model_parallel_size=args.tp,
        pipeline_model_parallel_size=args.pp,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        bias_dropout_fusion=False,
        apply_rope_fusion=False,
        sequence_parallel=args.sequence_parallel,
        **RECOMPUTED[args.recompute],
    )
    layer = get_gpt_layer_local_spec(normalization="RMSNorm")
    layer.submodules.self_attention.submodules.core_attention = FusedAttention
    model = GPTModel(
        config,
        layer,
        vocab_size=VOCABULARY,
        max_sequence_length=args.length,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        position_embedding_type="rope",
        share_embeddings_and_output_weights=False,
    )
    has_shards = args.distributed_optimizer
    options = DistributedDataParallelConfig(use_distributed_optimizer=has_shards, grad_reduce_in_fp32=True)
    model = DistributedDataParallel(config, options, model.cuda().bfloat16())
    config.finalize_model_grads_func = finalize_model_grads
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=1e-4,
            bf16=True,
            params_dtype=torch.bfloat16,
            use_distributed_optimizer=has_shards,
            clip_grad=1.0,
        ),
        [model],
    )
    config.grad_scale_func = optimizer.scale_loss
    return model, optimizer


def main():
    args = arguments()
    if torch_npu is not None:
        name_types_as_cuda()
        if not args.plain_norms:
            fuse_norms()
    if args.sequence_parallel:
        let_norms_see_shards()
    dist.init_process_group("nccl")
    parallel_state.initialize_model_parallel(args.tp, args.pp)
    model_parallel_cuda_manual_seed(1)
    model, optimizer = make(args)
    places = torch.arange(args.length).expand(args.batch, -1).cuda()

    def loss_of(output):
        loss = output.float().mean()
        return loss, {"loss": loss.detach()}

    def forward(_, module):
        tokens = torch.randint(VOCABULARY, (args.batch, args.length)).cuda()
        return module(tokens, places, None, labels=tokens), loss_of

    try:
        for step in range(args.steps):
            began = time.monotonic()
            model.zero_grad_buffer()
            optimizer.zero_grad()
            get_forward_backward_func()(
                forward_step_func=forward,
                data_iterator=None,
                model=[model],
                num_microbatches=args.micro_batches,
                seq_length=args.length,
                micro_batch_size=args.batch,
                decoder_seq_length=args.length,
                forward_only=False,
            )
            optimizer.step()
            peak = torch.cuda.max_memory_allocated() / 2**30
            print(f"step {step}: {time.monotonic() - began:.1f} s, peak {peak:.2f} GiB allocated", flush=True)
    finally:
        free, _ = torch.cuda.mem_get_info()
        print(f"room for PyTorch: {free + torch.cuda.memory_reserved()} bytes", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
