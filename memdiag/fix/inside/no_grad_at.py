"""Runs the model without autograd where the program never calls backward."""

import functools
import sys
from pathlib import Path

import torch

_FOLDER = Path(__file__).resolve().parent


def no_grad_at(calls):
    """Disables autograd in models that are called from some lines.

    Args:
        calls: Chains of calls, outermost first, each a list of [file, line]; a model is called below the last. A
            relative file is in the folder of this one.
    """
    chains = [[(_whole(_FOLDER / file), line) for file, line in chain] for chain in calls]
    before = []  # for each running model, whether autograd was enabled; None: not changed

    def enter(model, _):
        if (before and before[-1]) or not torch.is_grad_enabled() or not _is_below(chains):
            before.append(None)
            return
        before.append(True)
        torch.set_grad_enabled(False)

    def leave(model, _, output):
        if before and before.pop():
            torch.set_grad_enabled(True)

    torch.nn.modules.module.register_module_forward_pre_hook(enter)
    torch.nn.modules.module.register_module_forward_hook(leave, always_call=True)


@functools.cache
def _whole(file):
    return Path(file).resolve()


def _is_below(chains):
    frame, lines = sys._getframe(2), []
    while frame is not None:
        lines.append((_whole(frame.f_code.co_filename), frame.f_lineno))
        frame = frame.f_back
    for chain in chains:
        outwards = iter(lines)
        if all(line in outwards for line in reversed(chain)):
            return True
    return False
