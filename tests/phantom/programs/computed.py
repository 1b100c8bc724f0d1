"""Trains a small GPT on the CPU and on a simulated device; prints values read back as JSON: computed.py cuda|npu."""

import hashlib
import json
import sys
from importlib.util import find_spec

# Libraries such as transformers search for torch before they import it.
IS_INSTALLED = {name: find_spec(name) is not None for name in ("torch", "torch_npu")}

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812 - its usual name
from torch import nn  # noqa: E402

device = sys.argv[1]
if device == "npu" and IS_INSTALLED["torch_npu"]:
    import torch_npu  # noqa: F401 - for torch.npu


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(64, 32), nn.Embedding(16, 32)
        self.blocks, self.head = nn.Sequential(Block(32), Block(32)), nn.Linear(32, 64)

    def forward(self, tokens):
        return self.head(
            self.blocks(self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device)))
        )


def train(where):
    """Trains five steps without reading any value back."""
    torch.manual_seed(0)
    model = Net().to(where)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    tokens = torch.randint(64, (4, 16)).to(where)
    losses = []
    for _ in range(5):
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return model, tokens, losses


def runs_of(numbers, place):
    """Returns the numbers without repetitions, unless the device is an NPU, which has another size for them."""
    made = torch.tensor(numbers, device=place)
    return torch.unique_consecutive(made).tolist() if device == "cuda" else []


def around(tokens, number):
    """Returns a copy of which every second column is set to a number."""
    copy = tokens.clone()
    copy[:, ::2] = number
    return copy.tolist()


def decide(model, tokens, losses):
    """Returns values of tensors and decisions that depend on them, as a training script may compute them."""
    with torch.no_grad():
        logits = model(tokens)
        text = tokens[:1, :4]
        for _ in range(5):
            text = torch.cat([text, model(text)[:, -1].argmax(-1, keepdim=True)], 1)
    mask = logits[..., 0] > 0
    rate = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(rate, patience=0, threshold=0.5)
    stopped = None
    for step, loss in enumerate(losses):
        plateau.step(loss)
        if loss < 3 and stopped is None:
            stopped = step
    return {
        "losses": [loss.item() for loss in losses],
        "text": text.tolist(),
        "stopped": stopped,
        "rate": rate.param_groups[0]["lr"],
        "finite": bool(torch.isfinite(logits).all()),
        "selected": tokens[mask].tolist(),
        "places": mask.nonzero().tolist(),
        "masked": tokens.masked_select(mask).tolist(),
        "different": torch.unique(tokens).tolist(),
        "columns": torch.unique(tokens, dim=1).tolist() if device == "cuda" else [],
        "consecutive": runs_of([0, 4, 4, 8, 9, 9, 9], tokens.device),
        "equal": torch.equal(tokens, tokens + 0),
        "power": (2 ** torch.arange(4.0, device=tokens.device)).tolist(),
        "product": (tokens.float().t() @ torch.ones(len(tokens), device=tokens.device)).tolist(),
        "rest": (torch.arange(4, device=tokens.device) % 3).tolist(),
        "in a view": tokens.t()[1:3, ::2].add(1).tolist(),
        "padded": F.pad(tokens[:3, :4], (1, 2), value=7).tolist(),  # a copy, and values around it
        "filled in a view": around(tokens, 3),
        "drawn": torch.multinomial(logits[0].softmax(-1), 1).shape[0],
    }


cpu = decide(*train("cpu"))
memory = getattr(torch, device).memory
memory._record_memory_history("all", context=None, max_entries=10**6)
made = train(device)
events = [(event["action"], event["size"], event["addr"]) for event in memory._snapshot()["device_traces"][0]]
memory._record_memory_history(None)
order = torch.randperm(5).tolist()  # shows that the CPU's random generator was not advanced
there = decide(*made)
again = torch.nn.Dropout(0.5).to(device)(torch.ones(64, device=device))
kept = sorted(set(again.tolist()))
computing = sys.modules.get("memdiag_phantom_computing")
print(
    json.dumps(
        {
            "cpu": cpu,
            "device": there,
            "events": hashlib.sha256(repr(events).encode()).hexdigest(),
            "num_events": len(events),
            "order": order,
            "kept": kept,
            "facts": computing and computing.facts(),
        }
    )
)
