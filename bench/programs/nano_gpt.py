"""Trains a small GPT, after nanoGPT.

    nano_gpt.py --device npu|cuda [--layers 6 --width 384 --heads 6 --batch 8 --length 256 --steps 4]

With --lengths A,B,… step k has the length at place k, so that no step is like the one before.
"""

import argparse

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.attention(self.ln_1(x)).split(width, 2)
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        weights = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        weights = self.dropout(weights.masked_fill(~mask, float("-inf")).softmax(-1))
        x = x + self.dropout(self.out((weights @ v).transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.down(nn.functional.gelu(self.up(self.ln_2(x)))))


class GPT(nn.Module):
    def __init__(self, vocabulary, length, layers, width, heads):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    for name, value in (
        ("layers", 6),
        ("width", 384),
        ("heads", 6),
        ("batch", 8),
        ("length", 256),
        ("vocabulary", 8192),
        ("steps", 4),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lengths", default="")
    options = parser.parse_args()
    if options.device == "npu":
        import torch_npu  # noqa: F401 - makes the device known
    lengths = [int(length) for length in options.lengths.split(",") if length] or [options.length]
    with torch.device(options.device):
        model = GPT(options.vocabulary, max(lengths), options.layers, options.width, options.heads)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(options.steps):
        length = lengths[step % len(lengths)]
        tokens = torch.zeros(options.batch, length + 1, dtype=torch.long).to(options.device)
        loss = model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print("done")


if __name__ == "__main__":
    main()
