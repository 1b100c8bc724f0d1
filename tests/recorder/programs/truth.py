"""A training program's own account of its tensors and phases, with which the tests compare a recording.

The program marks a moment by allocating a tensor of a unique size. The recording contains that allocation too, so no
clocks need to be compared.
"""

from __future__ import annotations

import json

import torch

ODD = 300_007  # bytes of the first marker; no other tensor of the programs has such a size
STRIDE = 512


class Truth:
    """Moments of a program, and tensors that were live at them."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.step = -1
        self.moments: list[dict] = []
        self.tensors: list[dict] = []

    def moment(self, phase: str = "") -> int:
        """Marks this moment with its phase and step; returns its number."""
        size = ODD + STRIDE * len(self.moments)
        marker = torch.empty(size, dtype=torch.uint8, device=self.device)
        del marker
        self.moments.append({"size": size, "phase": phase, "step": self.step})
        return len(self.moments) - 1

    def see(self, at: int, tensor, category: str, name: str = "") -> None:
        """Adds a tensor that is live at a moment, with its category and name."""
        if tensor is None or tensor.device.type != self.device.split(":")[0]:
            return
        tensor = getattr(tensor, "_local_tensor", tensor)
        storage = tensor.untyped_storage()
        if storage.nbytes():
            row = {"at": at, "addr": tensor.data_ptr(), "bytes": storage.nbytes(), "category": category, "name": name}
            self.tensors.append({**row, "address_of_storage": storage.data_ptr()})

    def see_model(self, at: int, named: dict, *, gradients: bool = False) -> None:
        """Adds the parameters of a model, or their gradients."""
        for name, parameter in named.items():
            if gradients:
                self.see(at, parameter.grad, "gradient", "grad of " + name)
            else:
                self.see(at, parameter, "parameter", name)

    def see_states(self, at: int, optimizer, named: dict) -> None:
        """Adds the state tensors of an optimizer."""
        names = {id(parameter): name for name, parameter in named.items()}
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    self.see(at, value, "optimizer_state", f"{key} of {names[id(parameter)]}")

    def follow_activations(self, model) -> None:
        """Adds each output of a layer without sublayers as an activation of that layer."""

        def hook(path):
            def after(module, args, output):
                outputs = output if isinstance(output, tuple) else (output,)
                inside = {value.untyped_storage().data_ptr() for value in args if isinstance(value, torch.Tensor)}
                at = None
                for value in outputs:
                    if isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() not in inside:
                        at = self.moment() if at is None else at
                        self.see(at, value, "activation?", path)

            return after

        for path, module in model.named_modules():
            if not list(module.children()):
                module.register_forward_hook(hook(path))

    def write(self, path: str, **more) -> None:
        """Writes the account as JSON."""
        with open(path, "w") as file:
            json.dump({"device": self.device, "moments": self.moments, "tensors": self.tensors, **more}, file)
