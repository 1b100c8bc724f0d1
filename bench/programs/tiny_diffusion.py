"""Writes a Stable Diffusion pipeline with small random weights to ./model, and four images to ./photos."""

import json
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL, DDPMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from PIL import Image
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

torch.manual_seed(0)
letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
names = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
vocabulary = Path("vocabulary")
vocabulary.mkdir()
(vocabulary / "vocab.json").write_text(json.dumps({name: number for number, name in enumerate(names)}))
(vocabulary / "merges.txt").write_text("#version: 0.2\n")
text = CLIPTextConfig(
    vocab_size=len(names),
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=4,
    num_attention_heads=4,
    bos_token_id=len(names) - 2,
    eos_token_id=len(names) - 1,
    pad_token_id=len(names) - 1,
)
StableDiffusionPipeline(
    vae=AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(32, 64, 64),
        latent_channels=4,
    ),
    text_encoder=CLIPTextModel(text),
    tokenizer=CLIPTokenizer(str(vocabulary / "vocab.json"), str(vocabulary / "merges.txt"), model_max_length=77),
    unet=UNet2DConditionModel(
        sample_size=32,
        block_out_channels=(64, 128),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=128,
        attention_head_dim=8,
    ),
    scheduler=DDPMScheduler(),
    safety_checker=None,
    feature_extractor=None,
    requires_safety_checker=False,
).save_pretrained("model")
Path("photos").mkdir()
for number in range(4):
    pixels = np.random.default_rng(number).integers(0, 256, (160, 160, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(f"photos/{number}.png")
