"""Trainings in the style of the examples of other projects, with random weights: others.py NAME [DEVICE [small]].

Names: trainer, loop, generate (transformers), timm, lightning, unet, lora (diffusers), classification, segmentation
(torchvision), nanogpt. Each needs its package. With small, they are of a size for the CPU.
"""

import math
import sys

import torch
from torch import nn
from torch.nn import functional

DEVICE = (sys.argv[2:] or ["cuda"])[0]
STEPS = 3
SMALL = "small" in sys.argv[3:]


def sized(usual, small):
    return small if SMALL else usual


def trainer():
    """Fine-tunes a GPT-2 with the Trainer of transformers."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    vocabulary = sized(50257, 8192)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=vocabulary, n_layer=sized(10, 4), n_embd=sized(768, 128), n_head=sized(12, 4)),
    )
    tokens = torch.randint(0, vocabulary, (sized(64, 16), sized(512, 128)))
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    arguments = TrainingArguments(
        output_dir="out",
        max_steps=STEPS,
        per_device_train_batch_size=sized(16, 4),
        bf16=True,
        use_cpu=DEVICE == "cpu",
        report_to=[],
        save_strategy="no",
    )
    Trainer(model=model, args=arguments, train_dataset=rows).train()


def loop():
    """Trains a BERT for classification in a hand-written loop, and evaluates it."""
    from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

    model = BertForSequenceClassification(
        BertConfig(
            num_labels=3,
            hidden_size=sized(768, 128),
            num_hidden_layers=sized(12, 4),
            num_attention_heads=sized(12, 4),
            intermediate_size=sized(3072, 512),
        )
    ).to(DEVICE)
    tokens = torch.randint(0, 30000, (sized(192, 48), sized(384, 64)))
    data = torch.utils.data.TensorDataset(tokens, torch.randint(0, 3, (len(tokens),)))
    loader = torch.utils.data.DataLoader(data, batch_size=sized(64, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    scheduler = get_linear_schedule_with_warmup(optimizer, 1, STEPS)
    model.train()
    for tokens, labels in loader:
        output = model(input_ids=tokens.to(DEVICE), labels=labels.to(DEVICE))
        output.loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    model.eval()
    for tokens, _ in loader:
        with torch.no_grad():
            model(input_ids=tokens.to(DEVICE)).logits.argmax(-1).cpu()


def generate():
    """Generates text with a Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16).to(DEVICE).eval()
    prompts = torch.randint(3, 32000, (32, 700)).to(DEVICE)
    for _ in range(2):
        model.generate(prompts, max_new_tokens=40, min_new_tokens=40, do_sample=False, pad_token_id=0)


def timm():
    """Trains a vision transformer of timm."""
    from timm import create_model
    from timm.loss import LabelSmoothingCrossEntropy
    from timm.optim import create_optimizer_v2

    model = create_model(sized("vit_small_patch16_224", "vit_tiny_patch16_224"), num_classes=100).to(DEVICE)
    criterion = LabelSmoothingCrossEntropy(0.1)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    model.train()
    rows = sized(128, 8)
    for _ in range(STEPS):
        images, target = torch.randn(rows, 3, 224, 224).to(DEVICE), torch.randint(0, 100, (rows,)).to(DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def lightning():
    """Trains a transformer with the Trainer of Lightning."""
    import lightning as package

    width, rows, length = sized(512, 64), sized(192, 48), sized(256, 64)

    class Classifier(package.LightningModule):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, norm_first=True)
            self.embed, self.encoder = nn.Embedding(10000, width), nn.TransformerEncoder(layer, 8)
            self.head = nn.Linear(width, 10)

        def training_step(self, batch, _):
            tokens, target = batch
            return functional.cross_entropy(self.head(self.encoder(self.embed(tokens)).mean(1)), target)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    data = torch.utils.data.TensorDataset(torch.randint(0, 10000, (rows, length)), torch.randint(0, 10, (rows,)))
    run = package.Trainer(
        max_epochs=1,
        accelerator="cpu" if DEVICE == "cpu" else "gpu",
        devices=1,
        precision="bf16-mixed",
        logger=False,
        enable_checkpointing=False,
    )
    run.fit(Classifier(), torch.utils.data.DataLoader(data, rows // 3))


def unet():
    """Trains a diffusion model of images, after the unconditional example of diffusers."""
    from diffusers import DDPMScheduler, UNet2DModel

    model = UNet2DModel(
        sample_size=64,
        layers_per_block=2,
        block_out_channels=sized((128, 128, 256, 256), (32, 32, 64, 64)),
        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
    ).to(DEVICE)
    scheduler, rows = DDPMScheduler(num_train_timesteps=1000), sized(32, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(STEPS):
        images = torch.randn(rows, 3, 64, 64).to(DEVICE)
        noise, times = torch.randn_like(images), torch.randint(0, 1000, (rows,), device=DEVICE)
        predicted = model(scheduler.add_noise(images, noise, times), times).sample
        functional.mse_loss(predicted, noise).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def lora():
    """Trains low-rank adapters of a text-to-image model."""
    from diffusers import UNet2DConditionModel
    from peft import LoraConfig

    model = UNet2DConditionModel(
        sample_size=64,
        block_out_channels=sized((160, 320, 640, 640), (32, 32, 64, 64)),
        cross_attention_dim=sized(768, 64),
        attention_head_dim=8,
    )
    model.requires_grad_(False)
    model.to(DEVICE, torch.bfloat16)
    model.add_adapter(LoraConfig(r=8, lora_alpha=8, target_modules=["to_k", "to_q", "to_v", "to_out.0"]))
    layers = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(layers, lr=1e-4)
    model.train()
    for _ in range(STEPS):
        latents = torch.randn(sized(8, 1), 4, 64, 64).to(DEVICE, torch.bfloat16)
        text = torch.randn(sized(8, 1), 77, sized(768, 64)).to(DEVICE, torch.bfloat16)
        times = torch.randint(0, 1000, (len(latents),), device=DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            predicted = model(latents, times, text, return_dict=False)[0]
        functional.mse_loss(predicted.float(), latents.float()).backward()
        optimizer.step()
        optimizer.zero_grad()


def classification():
    """Trains a ResNet of torchvision, with an average of its weights."""
    from torchvision.models import resnet50

    model = resnet50(weights=None).to(DEVICE)
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler(DEVICE)
    rows, width = sized(96, 4), sized(224, 96)
    for _ in range(STEPS):
        images, target = torch.randn(rows, 3, width, width).to(DEVICE), torch.randint(0, 1000, (rows,)).to(DEVICE)
        with torch.autocast(DEVICE):
            loss = functional.cross_entropy(model(images), target, label_smoothing=0.1)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        average.update_parameters(model)


def segmentation():
    """Trains a segmentation model of torchvision."""
    from torchvision.models.segmentation import fcn_resnet50

    model = fcn_resnet50(weights=None, weights_backbone=None, num_classes=21, aux_loss=True).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rows, width = sized(12, 2), sized(320, 96)
    for _ in range(STEPS):
        images, target = (
            torch.randn(rows, 3, width, width).to(DEVICE),
            torch.randint(0, 21, (rows, width, width)).to(DEVICE),
        )
        losses = {name: functional.cross_entropy(each, target) for name, each in model(images).items()}
        loss = losses["out"] + 0.5 * losses["aux"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.c_attn, self.c_proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(width, 2)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, layers=10, width=768, heads=12, length=1024, vocabulary=50304):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.h:
            x = layer(x)
        logits = self.lm_head(self.ln_f(x))
        return functional.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


def nanogpt():
    """Trains a GPT with accumulated gradients, and evaluates it between steps."""
    model = (GPT(4, 128, 4, 256) if SMALL else GPT()).to(DEVICE)
    groups = [[each for each in model.parameters() if (each.dim() >= 2) == decays] for decays in (True, False)]
    optimizer = torch.optim.AdamW(
        [{"params": groups[0], "weight_decay": 0.1}, {"params": groups[1], "weight_decay": 0.0}], lr=6e-4
    )

    def batch():
        tokens = torch.randint(0, 50257, (sized(8, 2), sized(1025, 257)))
        return tokens[:, :-1].to(DEVICE), tokens[:, 1:].to(DEVICE)

    for step in range(STEPS):
        if step == 1:
            model.eval()
            with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
                model(*batch())
            model.train()
        for group in optimizer.param_groups:
            group["lr"] = 6e-4 * math.cos(step)
        for _ in range(2):
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = model(*batch()) / 2
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


PROGRAMS = (trainer, loop, generate, timm, lightning, unet, lora, classification, segmentation, nanogpt)

if __name__ == "__main__":
    if DEVICE == "npu":
        import torch_npu  # noqa: F401 - makes the device known
    torch.manual_seed(0)
    {program.__name__: program for program in PROGRAMS}[sys.argv[1]]()
    print("done")
