"""What a training program itself says of its tensors, for the tests to compare a recording with.

A moment is marked by allocating a tensor of a size that nothing else has: the recording has that event too, whatever
its clock.
"""

from __future__ import annotations

import json

import torch

ODD = 300_007  # bytes of the first marker; nothing in the programs has such a size
STRIDE = 512


class Truth:
    """Moments of a program, and what was where at each of them."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.step = -1
        self.moments: list[dict] = []
        self.tensors: list[dict] = []

    def moment(self, phase: str = "") -> int:
        """Marks this moment, of which the program says that it is in a phase; returns its number."""
        size = ODD + STRIDE * len(self.moments)
        marker = torch.empty(size, dtype=torch.uint8, device=self.device)
        del marker
        self.moments.append({"size": size, "phase": phase, "step": self.step})
        return len(self.moments) - 1

    def see(self, at: int, tensor, category: str, name: str = "") -> None:
        """Says what a tensor is that is alive at a moment."""
        if tensor is None or tensor.device.type != self.device.split(":")[0]:
            return
        tensor = getattr(tensor, "_local_tensor", tensor)
        storage = tensor.untyped_storage()
        if storage.nbytes():
            row = {"at": at, "addr": tensor.data_ptr(), "bytes": storage.nbytes(), "category": category, "name": name}
            self.tensors.append({**row, "address_of_storage": storage.data_ptr()})

    def see_model(self, at: int, named: dict, *, gradients: bool = False) -> None:
        """Says where parameters are, or their gradients."""
        for name, parameter in named.items():
            if gradients:
                self.see(at, parameter.grad, "gradient", "grad of " + name)
            else:
                self.see(at, parameter, "parameter", name)

    def see_states(self, at: int, optimizer, named: dict) -> None:
        """Says where the states of an optimizer are."""
        names = {id(parameter): name for name, parameter in named.items()}
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    self.see(at, value, "optimizer_state", f"{key} of {names[id(parameter)]}")

    def follow_activations(self, model) -> None:
        """Says of each tensor that a layer without layers makes that it is an activation of that layer."""

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
        """Writes everything."""
        with open(path, "w") as file:
            json.dump({"device": self.device, "moments": self.moments, "tensors": self.tensors, **more}, file)
