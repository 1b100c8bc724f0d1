"""Trains a net of another package: nets.py resnet50|convnext|deeplab|unet|lightning|optimizer:NAME|generate|loader."""

import sys

import torch
from torch import nn


def train(model, make, steps=3, optimizer=None, dtype=torch.bfloat16):
    """A few steps on the device with automatic mixed precision; ``make`` returns the loss for a model."""
    model = model.cuda().train()
    optimizer = (optimizer or (lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9)))(model.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
    for _ in range(steps):
        with torch.autocast("cuda", dtype=dtype):
            loss = make(model)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    print("loss", loss.item(), "scale", scaler.get_scale())


def images(model):
    return nn.functional.cross_entropy(
        model(torch.randn(8, 3, 224, 224).cuda()), torch.zeros(8, dtype=torch.long).cuda()
    )


def timm_net(name):
    import timm

    train(timm.create_model(name, pretrained=False), images, dtype=torch.float16)


def deeplab():
    from torchvision.models.segmentation import deeplabv3_resnet50

    model = deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=21)
    train(model, lambda net: net(torch.randn(2, 3, 256, 256).cuda())["out"].float().square().mean())


def unet():
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=32,
        block_out_channels=(64, 128, 256, 256),
        cross_attention_dim=256,
        attention_head_dim=8,
        norm_num_groups=32,
    )
    train(
        model,
        lambda net: (
            net(torch.randn(2, 4, 32, 32).cuda(), torch.randint(0, 1000, (2,)).cuda(), torch.randn(2, 77, 256).cuda())
            .sample.float()
            .square()
            .mean()
        ),
        optimizer=torch.optim.AdamW,
    )


def lightning():
    import lightning as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))

        def training_step(self, batch, _):
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss, prog_bar=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    data = torch.utils.data.TensorDataset(torch.randn(256, 1, 28, 28), torch.zeros(256, dtype=torch.long))
    loader = torch.utils.data.DataLoader(data, 32, pin_memory=True)
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="gpu",
        devices=1,
        precision="16-mixed",
        logger=False,
        enable_checkpointing=False,
        gradient_clip_val=1.0,
    )
    trainer.fit(Module(), loader)


def optimizer(name):
    from torchao import optim

    model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(4)])
    train(model, lambda net: net(torch.randn(16, 1024).cuda()).float().square().mean(), optimizer=getattr(optim, name))


def generate():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=4,
        num_attention_heads=8,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).cuda().eval()
    out = model.generate(torch.randint(0, 32000, (4, 16)).cuda(), max_new_tokens=32, do_sample=True)
    print(out.shape)


def compiled(mode):
    net = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512)) for _ in range(3)]).cuda()
    train(
        torch.compile(net, mode=mode),
        lambda model: model(torch.randn(32, 512).cuda()).float().square().mean(),
        optimizer=torch.optim.AdamW,
    )


torch.manual_seed(0)
kind, _, which = sys.argv[1].partition(":")
if kind == "timm":
    timm_net(which)
elif kind == "torchao":
    optimizer(which)
elif kind == "compile":
    compiled(which)
else:
    {"deeplab": deeplab, "unet": unet, "lightning": lightning, "generate": generate}[kind]()
