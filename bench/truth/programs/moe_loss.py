"""The load-balancing loss of a mixture of experts, as transformers has it: 48 layers, 128 experts, 8 chosen, bf16."""

import argparse
import json
from pathlib import Path

import torch
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

parser = argparse.ArgumentParser()
parser.add_argument("--tokens", type=int, required=True)
parser.add_argument("--out", type=Path, required=True)
given = parser.parse_args()

gates = tuple(torch.zeros(given.tokens, 128, dtype=torch.bfloat16, device="cuda") for _ in range(48))
torch.cuda.synchronize()
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
load_balancing_loss_func(gates, num_experts=128, top_k=8)
torch.cuda.synchronize()
given.out.write_text(json.dumps({"peak_above_bytes": torch.cuda.max_memory_allocated() - before}))
