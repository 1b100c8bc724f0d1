"""Keeps the state of optimizers in host memory, and steps one parameter at a time with its state on the device."""

import functools

import torch

_KINDS = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "SGD", "Adadelta")


def offload_optimizer(smallest_bytes):
    """Moves the state of the optimizers of torch.optim that treat each element on its own.

    Args:
        smallest_bytes: Smaller tensors stay on the device.
    """
    for name in _KINDS:
        kind = getattr(torch.optim, name, None)
        if kind is not None:
            kind.step = _in_turn(kind.step, smallest_bytes)


def _in_turn(original, smallest_bytes):
    @functools.wraps(original)
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        groups, used = self.param_groups, set()
        # memory on the host by parameter and name; another optimizer may have parameters with the same ids later
        copies = self.__dict__.setdefault("_copies_on_host", {})
        try:
            for group in groups:
                small = [each for each in group["params"] if _size(each) < smallest_bytes]
                large = [each for each in group["params"] if _size(each) >= smallest_bytes]
                for turn in ([small] if small else []) + [[each] for each in large]:
                    for parameter in turn:
                        _fetch(self.state.get(parameter), parameter)
                    self.param_groups = [{**group, "params": turn}]
                    original(self)
                    for parameter in turn:
                        if parameter.grad is not None:
                            used.add(parameter.device)
                            _put_away(self.state.get(parameter), parameter, smallest_bytes, copies)
        finally:
            self.param_groups = groups
        for device in used:  # the program may read the state on the host
            if device.type != "cpu":
                getattr(torch, device.type).synchronize(device)
        return loss

    return step


def _size(tensor):
    return tensor.numel() * tensor.element_size()


def _fetch(state, parameter):
    for name, value in (state or {}).items():
        if type(value) is torch.Tensor and value.dim() and value.device != parameter.device:
            state[name] = value.to(parameter.device, non_blocking=True)


def _put_away(state, parameter, smallest_bytes, copies):
    for name, value in (state or {}).items():
        if type(value) is not torch.Tensor or not value.dim() or _size(value) < smallest_bytes:
            continue
        key = (id(parameter), name)
        if key not in copies:
            copies[key] = torch.empty(
                value.shape, dtype=value.dtype, device="cpu", pin_memory=value.device.type != "cpu"
            )
        copies[key].copy_(value, non_blocking=True)
        state[name] = copies[key]
