"""Loads a language model onto the device, reads a prompt of 9 tokens and generates 2 more with a cache."""

import argparse
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--model-dir", required=True)
parser.add_argument("--out", type=Path, required=True)
given = parser.parse_args()

model = AutoModelForCausalLM.from_pretrained(
    given.model_dir, dtype=torch.bfloat16, device_map="cuda:0", local_files_only=True, attn_implementation="sdpa"
).eval()
torch.cuda.synchronize()
loaded = torch.cuda.memory_allocated()
torch.cuda.reset_peak_memory_stats()

batch = {
    "input_ids": torch.arange(9)[None].to("cuda:0"),
    "attention_mask": torch.ones(1, 9, dtype=torch.long).to("cuda:0"),
}
with torch.inference_mode():
    outputs = model(**batch, use_cache=True)
    token = torch.argmax(outputs.logits[:, -1, :], dim=-1, keepdim=True)
    mask = torch.cat([batch["attention_mask"], torch.ones_like(token)], dim=-1)
    outputs = model(input_ids=token, attention_mask=mask, past_key_values=outputs.past_key_values, use_cache=True)
    token = torch.argmax(outputs.logits[:, -1, :], dim=-1, keepdim=True)
torch.cuda.synchronize()
peak = torch.cuda.max_memory_allocated()
given.out.write_text(json.dumps({"loaded_bytes": loaded, "peak_bytes": peak, "peak_above_bytes": peak - loaded}))
