"""Trains a small mixture of experts of transformers for two steps: experts.py mixtral|qwen3_moe|deepseek_v3."""

import sys

import torch
import transformers
from transformers import AutoModelForCausalLM

COMMON = {
    "vocab_size": 8000,
    "hidden_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "max_position_embeddings": 2048,
}
LATENT = {
    "q_lora_rank": 128,
    "kv_lora_rank": 128,
    "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 32,
    "v_head_dim": 64,
    "first_k_dense_replace": 0,
    "n_group": 4,
    "topk_group": 2,
}
SMALL = {"intermediate_size": 1024, "moe_intermediate_size": 512, "num_experts_per_tok": 4}
MODELS = {
    "mixtral": ("Mixtral", {"intermediate_size": 1024, "num_local_experts": 8, "num_experts_per_tok": 2}),
    "qwen3_moe": ("Qwen3Moe", {"num_experts": 32, "head_dim": 64, **SMALL}),
    "deepseek_v3": ("DeepseekV3", {"n_routed_experts": 32, **SMALL, **LATENT}),
}
LENGTH, BATCH = 1024, 4

name, own = MODELS[sys.argv[1]]
config = getattr(transformers, f"{name}Config")(**COMMON, **own)
with torch.device("cuda"):
    # The experts in a loop, as in the models' own code: it asks the device which tokens each expert receives.
    model = AutoModelForCausalLM.from_config(config, experts_implementation="eager").train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
ids = torch.randint(0, COMMON["vocab_size"], (BATCH, LENGTH)).cuda()
for _ in range(2):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
