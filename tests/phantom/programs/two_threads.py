"""Two threads take turns at every layer: one serves a wide model, the other one trains a deep one."""

import threading
from itertools import pairwise

import torch
from torch import nn

ORDER = threading.Condition()
LOCAL = threading.local()
TURN, is_running = [0], [True, True]


def next_turn():
    """Lets the other thread run until its next turn."""
    with ORDER:
        TURN[0] = 1 - LOCAL.number if is_running[1 - LOCAL.number] else LOCAL.number
        ORDER.notify_all()
        ORDER.wait_for(lambda: TURN[0] == LOCAL.number)


class Turns(nn.Module):
    """Layers of these widths, with a turn before each."""

    def __init__(self, *widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*pair, device="cuda") for pair in pairwise(widths))

    def forward(self, x):
        """Runs the layers."""
        for layer in self.layers:
            next_turn()
            x = layer(x).sigmoid()
        return x


class Wide(Turns):
    """The model that is served."""


class Deep(Turns):
    """The model that is trained."""


def serve(model):
    """Answers three requests."""
    for _ in range(3):
        batch = torch.ones(64, 1000, device="cuda")
        with torch.no_grad():
            answer = model(batch)
        next_turn()
        scaled = answer * 2
        next_turn()
        del answer, scaled, batch


def train(model):
    """Takes three steps."""
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    for _ in range(3):
        batch = torch.ones(64, 500, device="cuda")
        loss = model(batch).mean()
        next_turn()
        loss.backward()
        next_turn()
        optimizer.step()
        optimizer.zero_grad()
        del batch, loss


def work(number, function, model):
    """Runs a function in turns with the other thread."""
    LOCAL.number = number
    with ORDER:
        ORDER.wait_for(lambda: TURN[0] == number)
    function(model)
    with ORDER:
        is_running[number], TURN[0] = False, 1 - number
        ORDER.notify_all()


models = Wide(1000, 3000, 1010), Deep(500, 700, 900)
threads = [threading.Thread(target=work, args=each) for each in ((0, serve, models[0]), (1, train, models[1]))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
