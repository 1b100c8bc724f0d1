"""Runs torchtitan's own trainer for three steps: torchtitan_own.py MODEL [--option value …], for example llama3.

This program writes a tokenizer and a text instead of downloading them. The trainer reads both from the current folder.
"""

import json
import runpy
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CONFIG = """
[job]
dump_folder = "outputs"
[model]
name = "{model}"
flavor = "debugmodel"
hf_assets_path = "tests/assets/tokenizer"
[training]
local_batch_size = 4
seq_len = 2048
steps = 3
dataset = "c4_test"
[lr_scheduler]
warmup_steps = 2
[metrics]
log_freq = 1
"""

model, *options = sys.argv[1:]
assets = Path("tests/assets")
for name in ("tokenizer", "c4_test"):
    (assets / name).mkdir(parents=True, exist_ok=True)
special = ["<|begin_of_text|>", "<|end_of_text|>"]
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=special)
tokenizer.train_from_iterator(["hello world"], trainer)
tokenizer.save(str(assets / "tokenizer" / "tokenizer.json"))
about = {"bos_token": special[0], "eos_token": special[1], "tokenizer_class": "PreTrainedTokenizerFast"}
(assets / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(about))
line = json.dumps({"text": "hello world " * 400})
(assets / "c4_test" / "data.json").write_text(f"{line}\n" * 400)
Path("config.toml").write_text(CONFIG.format(model=model))
sys.argv = ["train", "--job.config_file", "config.toml", *options]
runpy.run_module("torchtitan.train", run_name="__main__")
