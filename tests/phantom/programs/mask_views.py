"""Selects by views of masks, in the forward and in the backward pass; prints the sizes, and where one was assumed."""

import ctypes
import json

import torch

ask = ctypes.CDLL(None).memdiag_phantom_facts
ask.restype = ctypes.c_char_p


def backward(mask):
    """Selects the gradient of what a mask scatters: masked_select of an expanded mask, on autograd's thread."""
    source = torch.ones(mask.numel(), device="cuda", requires_grad=True)
    torch.zeros(mask.shape, device="cuda").masked_scatter(mask, source).sum().backward()
    return list(source.grad.shape)


written = torch.tensor([[True, False, True], [True, False, False]])
unknown = torch.rand(2, 1, device="cuda") > 0.5
print(
    json.dumps(
        {
            "expanded": len(torch.rand(1, 4, device="cuda").masked_select(written.cuda()[:, :1])),
            "slice": len(written.cuda()[:, ::2].nonzero()),
            "backward": backward(written.cuda()[:, 1:2].expand(2, 4)),
            "assumed": json.loads(ask())["assumed_sizes"]["count"],
            "unknown": backward(unknown.expand(2, 4)),
            "place": json.loads(ask())["assumed_sizes"]["last"],
        }
    )
)
