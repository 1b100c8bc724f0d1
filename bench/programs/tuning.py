"""Fine-tunes a small model for three steps: tuning.py KIND [--batch N] [--length N].

Kinds: lora (PEFT), trainer (LoRA by PEFT in the Trainer of transformers), qlora and int8 (PEFT on bitsandbytes, paged
8-bit AdamW), adam8 (bitsandbytes' AdamW), sft, dpo and grpo (TRL; grpo generates), gla (gated linear attention of
flash-linear-attention), liger (its Triton kernels), float8 (torchao's linear layers), flash (flash-attn's package).
"""

import argparse

import torch
import transformers
from transformers import AutoModelForCausalLM

CONFIG = transformers.LlamaConfig(
    vocab_size=32000,
    hidden_size=512,
    intermediate_size=1376,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=4,
    max_position_embeddings=1024,
    bos_token_id=0,
    eos_token_id=1,
    pad_token_id=1,
)
parser = argparse.ArgumentParser()
parser.add_argument("kind")
parser.add_argument("--batch", type=int, default=4, help="sequences of a step")
parser.add_argument("--length", type=int, default=512, help="tokens of a sequence")
given = parser.parse_args()
KIND, BATCH, LENGTH = given.kind, given.batch, given.length
STEPS = 3
ON_CPU = not torch.accelerator.is_available()  # the Trainer uses bfloat16 on a CPU only if it is told to stay there


def tokenizer():
    """A tokenizer of bytes, made here."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        ["hello world"],
        trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=["<s>", "</s>"]),
    )
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)


def train(model, optimizer):
    ids = torch.randint(0, 32000, (BATCH, LENGTH)).cuda()
    for _ in range(STEPS):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def peft(kind):
    """LoRA on a model in bfloat16, or quantized by bitsandbytes."""
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    model = AutoModelForCausalLM.from_config(CONFIG, dtype=torch.bfloat16)
    if kind == "lora":
        model = model.cuda()
    else:
        model.save_pretrained("base")
        quantized = transformers.BitsAndBytesConfig(
            load_in_4bit=kind == "qlora",
            load_in_8bit=kind == "int8",
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
        model = AutoModelForCausalLM.from_pretrained("base", quantization_config=quantized, device_map={"": 0})
        model = prepare_model_for_kbit_training(model)
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if kind == "lora":
        train(model, torch.optim.AdamW(trained, 1e-4))
    else:
        import bitsandbytes

        train(model, bitsandbytes.optim.PagedAdamW8bit(trained, 1e-4))


def trl(kind):
    """TRL's trainers on a few lines of text."""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    text = "hello world " * min(40, LENGTH // 4)
    common = {
        "output_dir": "out",
        "max_steps": STEPS,
        "per_device_train_batch_size": BATCH,
        "bf16": True,
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": ON_CPU,
        "max_length": LENGTH,
    }
    model = AutoModelForCausalLM.from_config(CONFIG)
    if kind == "sft":
        rows = Dataset.from_list([{"text": text}] * 32)
        made = SFTTrainer(model, args=SFTConfig(**common), train_dataset=rows, processing_class=tokenizer())
    else:
        rows = Dataset.from_list([{"prompt": text, "chosen": text, "rejected": "no " * min(80, LENGTH // 2)}] * 32)
        reference = AutoModelForCausalLM.from_config(CONFIG)
        made = DPOTrainer(model, reference, args=DPOConfig(**common), train_dataset=rows, processing_class=tokenizer())
    made.train()


def grpo():
    """TRL's GRPOTrainer: four completions for each prompt, judged by their length."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    small = {"vocab_size": 300, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
    config = transformers.LlamaConfig(**{**CONFIG.to_dict(), **small, "head_dim": 16, "num_key_value_heads": 8})
    rows = Dataset.from_list([{"prompt": "hello world"}] * 32)
    settings = GRPOConfig(
        output_dir="out",
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        num_generations=BATCH,
        max_completion_length=16,
        bf16=False,
        report_to=[],
        save_strategy="no",
    )
    GRPOTrainer(
        AutoModelForCausalLM.from_config(config),
        reward_funcs=lambda completions, **_: [float(len(one)) for one in completions],
        args=settings,
        train_dataset=rows,
        processing_class=tokenizer(),
    ).train()


def trainer():
    """LoRA on a model in bfloat16, by the Trainer of transformers."""
    from peft import LoraConfig, get_peft_model

    model = AutoModelForCausalLM.from_config(CONFIG, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    ids = torch.randint(0, 32000, (LENGTH,))
    settings = transformers.TrainingArguments(
        "out",
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        report_to=[],
        save_strategy="no",
        use_cpu=ON_CPU,
        bf16=True,
    )
    transformers.Trainer(model, settings, train_dataset=[{"input_ids": ids, "labels": ids}] * STEPS * BATCH).train()


def gla():
    """A model of flash-linear-attention, whose kernels Triton compiles."""
    from fla.models import GLAConfig

    config = GLAConfig(hidden_size=512, num_hidden_layers=4, num_heads=4, vocab_size=32000, fuse_cross_entropy=True)
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16).cuda().train()
    train(model, torch.optim.AdamW(model.parameters(), 1e-4))


def adam8():
    """bitsandbytes' AdamW, whose states have 8 bits."""
    import bitsandbytes

    model = AutoModelForCausalLM.from_config(CONFIG, dtype=torch.bfloat16).cuda().train()
    train(model, bitsandbytes.optim.AdamW8bit(model.parameters(), 1e-4))


def liger():
    """Liger's kernels in place of those of the model."""
    from liger_kernel.transformers import apply_liger_kernel_to_llama

    apply_liger_kernel_to_llama()
    model = AutoModelForCausalLM.from_config(CONFIG, dtype=torch.bfloat16).cuda().train()
    train(model, torch.optim.AdamW(model.parameters(), 1e-4))


def float8():
    """Linear layers of the model in 8 bits."""
    from torchao.float8 import convert_to_float8_training

    model = AutoModelForCausalLM.from_config(CONFIG, dtype=torch.bfloat16).cuda().train()
    convert_to_float8_training(model, module_filter_fn=lambda _, name: name != "lm_head")
    train(model, torch.optim.AdamW(model.parameters(), 1e-4))


def flash():
    """flash-attn's own functions for attention."""
    model = AutoModelForCausalLM.from_config(CONFIG, dtype=torch.bfloat16, attn_implementation="flash_attention_2")
    model = model.cuda().train()
    train(model, torch.optim.AdamW(model.parameters(), 1e-4))


torch.manual_seed(0)
if KIND in ("sft", "dpo"):
    trl(KIND)
elif KIND in ("lora", "qlora", "int8"):
    peft(KIND)
else:
    {"grpo": grpo, "trainer": trainer, "gla": gla, "adam8": adam8, "liger": liger, "float8": float8, "flash": flash}[
        KIND
    ]()
