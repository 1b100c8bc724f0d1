"""Trains one rank of a Megatron-core GPT for three steps: megatron_core.py --tp 8 [--pp 4] [--ep 8] [--layers 32 …]."""

import argparse
from functools import partial

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.moe import moe_utils

SHAPE = {
    "tp": 8,
    "pp": 1,
    "ep": 1,
    "layers": 8,
    "hidden": 4096,
    "heads": 32,
    "ffn": 11008,
    "length": 4096,
    "batch": 1,
    "micro": 1,
    "experts": 0,
}
parser = argparse.ArgumentParser()
for name, value in SHAPE.items():
    parser.add_argument(f"--{name}", type=int, default=value)
parser.add_argument("--recompute", default="selective")
parser.add_argument("--capacity", type=float, default=0.0)
parser.add_argument("--distributed-optimizer", action="store_true")
given = parser.parse_args()

dist.init_process_group("nccl")
parallel_state.initialize_model_parallel(given.tp, given.pp, expert_model_parallel_size=given.ep)
model_parallel_cuda_manual_seed(1)
# megatron-core 0.16 does not define it if Transformer Engine is not installed
vars(moe_utils).setdefault("te_general_gemm", None)
routing = {"moe_router_topk": 2, "moe_token_dispatcher_type": "alltoall"}
if given.capacity:  # each expert takes as many tokens as any: without this the device has to count them
    routing |= {"moe_expert_capacity_factor": given.capacity, "moe_pad_expert_input_to_capacity": True}
experts = {"num_moe_experts": given.experts, **routing} if given.experts else {}
config = TransformerConfig(
    num_layers=given.layers,
    hidden_size=given.hidden,
    num_attention_heads=given.heads,
    ffn_hidden_size=given.ffn,
    gated_linear_unit=True,
    activation_func=torch.nn.functional.silu,
    normalization="RMSNorm",
    add_bias_linear=False,
    bf16=True,
    params_dtype=torch.bfloat16,
    pipeline_dtype=torch.bfloat16,
    autocast_dtype=torch.bfloat16,
    tensor_model_parallel_size=given.tp,
    pipeline_model_parallel_size=given.pp,
    expert_model_parallel_size=given.ep,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    gradient_accumulation_fusion=False,
    masked_softmax_fusion=False,
    persist_layer_norm=False,
    bias_dropout_fusion=False,
    apply_rope_fusion=False,
    recompute_granularity=given.recompute if given.recompute != "none" else None,
    **experts,
)
model = GPTModel(
    config,
    get_gpt_layer_local_spec(num_experts=given.experts or None, normalization="RMSNorm"),
    vocab_size=32000,
    max_sequence_length=given.length,
    pre_process=parallel_state.is_pipeline_first_stage(),
    post_process=parallel_state.is_pipeline_last_stage(),
    position_embedding_type="rope",
    share_embeddings_and_output_weights=False,
)
model = DistributedDataParallel(
    config,
    DistributedDataParallelConfig(use_distributed_optimizer=given.distributed_optimizer, grad_reduce_in_fp32=True),
    model.cuda().bfloat16(),
)
config.finalize_model_grads_func = finalize_model_grads
optimizer = get_megatron_optimizer(
    OptimizerConfig(
        optimizer="adam",
        lr=1e-4,
        bf16=True,
        params_dtype=torch.bfloat16,
        use_distributed_optimizer=given.distributed_optimizer,
        clip_grad=1.0,
    ),
    [model],
)
config.grad_scale_func = optimizer.scale_loss


def loss_of(output):
    loss = output.float().mean()
    return loss, {"loss": loss.detach()}


def forward(_, module):
    ids = torch.randint(0, 32000, (given.batch, given.length)).cuda()
    places = torch.arange(given.length).expand(given.batch, -1).cuda()
    mask = torch.triu(torch.ones(given.length, given.length, dtype=torch.bool), 1)[None, None].cuda()
    return module(ids, places, mask, labels=ids), partial(loss_of)


for _ in range(3):
    model.zero_grad_buffer()
    optimizer.zero_grad()
    get_forward_backward_func()(
        forward_step_func=forward,
        data_iterator=None,
        model=[model],
        num_microbatches=given.micro,
        seq_length=given.length,
        micro_batch_size=given.batch,
        decoder_seq_length=given.length,
        forward_only=False,
    )
    print("step", optimizer.step()[0])
dist.destroy_process_group()
