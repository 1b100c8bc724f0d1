"""Trains a small transformers model made from its configuration: huggingface.py MODEL plain|checkpointing|trainer."""

import sys

import torch
import transformers
from transformers import AutoModelForCausalLM

TEXT = {
    "vocab_size": 32000,
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 1024,
}
LENGTH, BATCH = 512, 4


def causal(name, **more):
    """A language model and a batch for it."""
    config = getattr(transformers, f"{name}Config")(**{**TEXT, **more})
    return AutoModelForCausalLM.from_config(config), tokens()


def tokens():
    ids = torch.randint(0, 32000, (BATCH, LENGTH))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def gpt2():
    config = transformers.GPT2Config(vocab_size=32000, n_embd=512, n_layer=4, n_head=8)
    return transformers.GPT2LMHeadModel(config), tokens()


def bert():
    config = transformers.BertConfig(
        vocab_size=32000, hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048
    )
    return transformers.BertForMaskedLM(config), tokens()


def vit():
    config = transformers.ViTConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536)
    return transformers.ViTForImageClassification(config), {
        "pixel_values": torch.randn(8, 3, 224, 224),
        "labels": torch.zeros(8, dtype=torch.long),
    }


def whisper():
    config = transformers.WhisperConfig(
        vocab_size=32000,
        d_model=384,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return transformers.WhisperForConditionalGeneration(config), {
        "input_features": torch.randn(2, 80, 3000),
        "labels": torch.randint(0, 32000, (2, 64)),
    }


MODELS = {
    "llama": lambda: causal("Llama"),
    "mistral": lambda: causal("Mistral", sliding_window=256),
    "qwen2": lambda: causal("Qwen2"),
    "qwen3": lambda: causal("Qwen3"),
    "mixtral": lambda: causal("Mixtral", num_local_experts=4, num_experts_per_tok=2),
    "gpt2": gpt2,
    "bert": bert,
    "vit": vit,
    "whisper": whisper,
}


def plain(model, batch, checkpointing):
    model = model.cuda().train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for _ in range(3):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**{name: value.cuda(non_blocking=True) for name, value in batch.items()}).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print("loss", loss.item())


def trainer(model, batch):
    rows = [{name: value[i % len(value)] for name, value in batch.items()} for i in range(32)]
    arguments = transformers.TrainingArguments(
        output_dir="out",
        max_steps=4,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        bf16=True,
        report_to=[],
        logging_steps=1,
        save_strategy="no",
        dataloader_num_workers=2,
        gradient_checkpointing=model.supports_gradient_checkpointing,
    )
    transformers.Trainer(model=model, args=arguments, train_dataset=rows).train()


torch.manual_seed(0)
model, batch = MODELS[sys.argv[1]]()
if sys.argv[2] == "trainer":
    trainer(model, batch)
else:
    plain(model, batch, sys.argv[2] == "checkpointing")
