"""Writes PyTorch's hooks before, during and after a recording that the program makes itself."""

import json
import signal
import sys

import torch
from nets import GPT, batch_for
from torch.nn import functional
from torch.optim import optimizer as optim

out, device, root = sys.argv[1:]
sys.path.insert(0, root)
if device == "npu":
    import torch_npu  # noqa: F401


def hooks():
    module = torch.nn.modules.module
    profiler = torch.autograd.profiler
    return {
        "global": [
            len(module._global_forward_pre_hooks),
            len(module._global_forward_hooks),
            len(getattr(module, "_global_forward_hooks_always_called", ())),
            len(optim._global_optimizer_pre_hooks),
            len(optim._global_optimizer_post_hooks),
        ],
        "functions": [
            str(function)
            for function in (
                torch.autograd.backward,
                torch.autograd.grad,
                profiler._enable_profiler,
                profiler._disable_profiler,
                torch.cuda.memory._record_memory_history,
                getattr(module, "_has_any_global_hook", None),
            )
        ],
        # compiled modules ask so, and warn of hooks
        "is_warned_of": bool(getattr(module, "_has_any_global_hook", bool)()),
        "signals": [str(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)],
    }


from memdiag.recorder.in_program import recording  # noqa: E402

before = hooks()
model = GPT().to(device)
with recording("own.pkl", backends=(device,)):
    inside = hooks()
    with torch.nn.modules.module.register_module_forward_hook(lambda *_: None):
        with_own = hooks()
    inputs, targets = batch_for(model, device)
    functional.cross_entropy(model(inputs), targets).backward()
after = hooks()
with open(out, "w") as file:
    json.dump({"before": before, "inside": inside, "with_own": with_own, "after": after}, file)
