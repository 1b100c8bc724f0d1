"""Makes optimizers of bitsandbytes, whose state has 8 bits, where the program makes those of torch.optim."""

import torch

_SHARED = {"lr", "betas", "eps", "weight_decay"}


def eight_bit_optimizer():
    """Makes ``torch.optim.Adam`` and ``AdamW`` return ``Adam8bit`` and ``AdamW8bit``; subclasses stay as they are."""
    for name in ("Adam", "AdamW"):
        kind = getattr(torch.optim, name)
        kind.__new__ = _made(kind, f"{name}8bit")


def _made(kind, name):
    def __new__(cls, params=None, *args, **options):  # noqa: N807 - the name that errors show
        options = {**dict(zip(("lr", "betas", "eps", "weight_decay"), args, strict=False)), **options}
        usual = not any(options.get(each) for each in ("amsgrad", "maximize", "capturable", "differentiable"))
        if cls is not kind or params is None or not usual or len(args) > len(_SHARED):
            return object.__new__(cls)
        import bitsandbytes

        options = {key: float(value) if key == "lr" else value for key, value in options.items() if key in _SHARED}
        return getattr(bitsandbytes.optim, name)(params, **options)

    return __new__
