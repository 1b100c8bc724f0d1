"""Short programs around a package, as its first page shows them: library_calls.py NAME [DEVICE [SIZE]].

Names: ppo, a2c, dqn, sac (stable-baselines3), fasterrcnn, maskrcnn, retinanet (torchvision), gcn, sage, gat
(torch_geometric), graphed (torch.cuda.make_graphed_callables), rnn (sequences of varying length), cache
(``generate`` of transformers with its key-value cache), serving (requests of varying length), whisper (openai-whisper
transcribes made-up audio).

SIZE is the number of images of a detector, of nodes of a graph, of sequences or prompts of a batch, of rows of a layer,
or of steps from which an agent learns at once. Requests have SIZE times as many prompts. Whisper has no size.
"""

import random
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

NAME = sys.argv[1]
DEVICE = (sys.argv[2:] or ["cuda"])[0]
SIZE = int((sys.argv[3:] or ["0"])[0])
STEPS = 3


def reinforcement():
    """Trains an agent of stable-baselines3 in a small world of gymnasium."""
    import stable_baselines3

    world = "Pendulum-v1" if NAME == "sac" else "CartPole-v1"
    own = {"ppo": {"n_steps": 256}, "dqn": {"learning_starts": 100}, "sac": {"learning_starts": 100}}.get(NAME, {})
    sized = {"ppo": ("n_steps", "batch_size"), "a2c": ("n_steps",)}.get(NAME, ("batch_size",))
    own |= dict.fromkeys(sized, SIZE) if SIZE else {}
    steps = 2 * SIZE if SIZE and NAME in ("ppo", "a2c") else 600
    model = getattr(stable_baselines3, NAME.upper())("MlpPolicy", world, device=DEVICE, seed=0, **own)
    model.learn(total_timesteps=steps)


def detection():
    """Trains a detector of torchvision with random boxes, then detects."""
    from torchvision.models import detection as zoo

    names = {"fasterrcnn": "fasterrcnn_resnet50_fpn", "maskrcnn": "maskrcnn_resnet50_fpn"}
    name = names.get(NAME, "retinanet_resnet50_fpn")
    model = getattr(zoo, name)(weights=None, weights_backbone=None, num_classes=5).to(DEVICE).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
    images = [torch.rand(3, 320, 320).to(DEVICE) for _ in range(SIZE or 2)]
    corner = torch.tensor([[20.0, 30.0], [80.0, 60.0], [150.0, 40.0]])
    target = {
        "boxes": torch.cat([corner, corner + 90], 1).to(DEVICE),
        "labels": torch.tensor([1, 2, 3]).to(DEVICE),
        "masks": torch.ones(3, 320, 320, dtype=torch.uint8).to(DEVICE),
    }
    for _ in range(STEPS):
        loss = sum(model(images, [target] * len(images)).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        model(images)


def graph_network():
    """Classifies the nodes of a generated graph with torch_geometric."""
    import numpy as np
    from torch_geometric.nn import models
    from torch_geometric.utils import barabasi_albert_graph

    kinds = {"gcn": models.GCN, "sage": models.GraphSAGE, "gat": models.GAT}
    np.random.seed(0)  # noqa: NPY002 (barabasi_albert_graph draws from numpy's global generator)
    nodes = SIZE or 5000
    edges = barabasi_albert_graph(nodes, 8).to(DEVICE)
    features, target = torch.rand(nodes, 256).to(DEVICE), torch.randint(0, 7, (nodes,)).to(DEVICE)
    model = kinds[NAME](256, 128, 3, 7, dropout=0.5).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    is_training = (torch.arange(nodes) < 0.6 * nodes).to(DEVICE)
    for _ in range(STEPS):
        loss = functional.cross_entropy(model(features, edges)[is_training], target[is_training])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.3f}")


def graphed():
    """Trains two layers as captured graphs."""
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).to(DEVICE)
    rows = SIZE or 256
    first, sample = model[0], torch.randn(rows, 1024, device=DEVICE, requires_grad=True)
    first = torch.cuda.make_graphed_callables(first, (sample,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        model[2](model[1](first(torch.randn(rows, 1024, device=DEVICE)))).square().mean().backward()
        optimizer.step()


def rnn():
    """Trains an LSTM on packed sequences whose lengths differ from batch to batch."""
    embed, lstm, head = nn.Embedding(1000, 128), nn.LSTM(128, 256, 2, batch_first=True), nn.Linear(256, 10)
    model = nn.ModuleList([embed, lstm, head]).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    chance, size = random.Random(0), SIZE or 32  # noqa: S311
    for _ in range(2 * STEPS):
        drawn = [chance.randint(5, 200) for _ in range(32)]
        lengths = sorted((drawn[row % 32] for row in range(size)), reverse=True)
        tokens = torch.randint(0, 1000, (size, lengths[0])).to(DEVICE)
        packed = pack_padded_sequence(embed(tokens), lengths, batch_first=True)
        states, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True)
        loss = head(states[:, -1]).logsumexp(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def small_llama():
    """A Llama of 4 layers with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=8000, hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8
    )
    return LlamaForCausalLM(config).to(DEVICE).eval()


def cache():
    """Generates 24 tokens for 8 prompts, or another number of them."""
    model = small_llama()
    prompts = torch.randint(3, 8000, (SIZE or 8, 300)).to(DEVICE)
    model.generate(prompts, max_new_tokens=24, do_sample=False, pad_token_id=0, eos_token_id=2)


def serving():
    """Serves twelve batches of prompts of varying number and length."""
    model, chance = small_llama(), random.Random(0)  # noqa: S311
    with torch.inference_mode():
        for _ in range(12):
            number = chance.randint(1, 8) * (SIZE or 1)
            prompts = torch.randint(3, 8000, (number, chance.randint(20, 600))).to(DEVICE)
            answer = model(prompts, use_cache=True)
            for _ in range(4):
                token = answer.logits[:, -1:].argmax(-1)
                answer = model(token, past_key_values=answer.past_key_values, use_cache=True)


def whisper():
    """Transcribes 10 s of noise with a small Whisper of random weights, with the time of each word."""
    from whisper import model as models
    from whisper import transcribe

    sizes = {"audio": (80, 1500, 192, 3, 2), "text": (51865, 448, 192, 3, 2)}
    model = models.Whisper(models.ModelDimensions(*sizes["audio"], *sizes["text"])).to(DEVICE).eval()
    noise = torch.randn(10 * 16_000) * 0.1
    print(transcribe(model, noise, temperature=(0, 0.5), language="en", sample_len=16, word_timestamps=True)["text"])


if __name__ == "__main__":
    torch.manual_seed(0)
    GROUPS = {
        reinforcement: ("ppo", "a2c", "dqn", "sac"),
        detection: ("fasterrcnn", "maskrcnn", "retinanet"),
        graph_network: ("gcn", "sage", "gat"),
        graphed: ("graphed",),
        rnn: ("rnn",),
        cache: ("cache",),
        serving: ("serving",),
        whisper: ("whisper",),
    }
    next(work for work, names in GROUPS.items() if NAME in names)()
