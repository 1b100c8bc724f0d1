"""Makes optimizer steps work without temporary copies of all parameters."""

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook


def lean_optimizer(kind):
    """Selects another implementation of the optimizers of torch.optim, before their first step.

    Args:
        kind: "fused" where the optimizer and its parameters allow it, or "one_by_one" (foreach=False).
    """
    known = set()

    def before(optimizer, args, kwargs):
        if id(optimizer) in known:
            return
        known.add(id(optimizer))
        for group in optimizer.param_groups:
            if "foreach" not in group:
                continue
            fused = kind == "fused" and "fused" in group and _can_fuse(optimizer, group)
            if fused and not any(optimizer.state.get(parameter) for parameter in group["params"]):
                group["fused"], group["foreach"] = True, False
                optimizer._step_supports_amp_scaling = True
            elif not group.get("fused"):
                group["foreach"] = False

    register_optimizer_step_pre_hook(before)


def _can_fuse(optimizer, group):
    kinds = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad)
    if type(optimizer) not in kinds or group.get("differentiable"):
        return False
    return all(torch.is_floating_point(p) and p.device.type in ("cuda", "cpu") for p in group["params"])
