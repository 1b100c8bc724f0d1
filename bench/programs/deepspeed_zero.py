"""Trains a small Llama with DeepSpeed's ZeRO for three steps: deepspeed_zero.py 1|2|3 [offload] [batch=4]."""

import sys

import deepspeed
import torch
import transformers
from transformers import AutoModelForCausalLM

stage, *more = sys.argv[1:]
batch = next((int(word[6:]) for word in more if word.startswith("batch=")), 4)
zero = {"stage": int(stage), "overlap_comm": True, "contiguous_gradients": True, "reduce_bucket_size": 5_000_000}
if "offload" in more:
    zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
settings = {
    "train_micro_batch_size_per_gpu": batch,
    "bf16": {"enabled": True},
    "zero_optimization": zero,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    # PyTorch's optimizer: DeepSpeed's own would be compiled by nvcc.
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    "gradient_clipping": 1.0,
}
deepspeed.init_distributed("nccl")
config = transformers.LlamaConfig(
    vocab_size=32000,
    hidden_size=512,
    intermediate_size=1376,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=4,
)
with deepspeed.zero.Init(config_dict_or_path=settings, enabled=stage == "3"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
engine, *_ = deepspeed.initialize(model=model, config=settings)
ids = torch.randint(0, 32000, (batch, 512)).cuda()
for _ in range(3):
    loss = engine(input_ids=ids, labels=ids).loss
    engine.backward(loss)
    engine.step()
torch.distributed.destroy_process_group()
