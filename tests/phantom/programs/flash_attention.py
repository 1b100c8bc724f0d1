"""Prints what flash-attn's stand-in and PyTorch's own flash attention allocate, for several shapes, as JSON."""

import json
import sys

import flash_attn_2_cuda as stand_in
import torch

NONE = None, None, None, None


def requests(function, *arguments):
    """Returns what a call gives, and the sizes that it requested (and, below zero, freed), in order."""
    torch.cuda.memory._record_memory_history(context=None, stacks="python")
    given = function(*arguments)
    entries = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    kinds = {"alloc": 1, "free_completed": -1}
    return given, [kinds[each["action"]] * each["size"] for each in entries if each["action"] in kinds]


def tensors(*shape):
    return [torch.empty(*shape, dtype=torch.bfloat16, device="cuda") for _ in range(4)]


def both(batch, length, heads, size):
    """Returns the requests of forward and backward, of the stand-in and of PyTorch."""
    grad, q, k, v = tensors(batch, length, heads, size)
    common = (0.0, size**-0.5, True, -1, 0, 0.0)
    (out, sums, _, _), forward = requests(stand_in.fwd, q, k, v, None, None, *common, False, None)
    _, backward = requests(stand_in.bwd, grad, q, k, v, out, sums, *NONE, *common, False, None, None)
    lengths = None, None, length, length, 0.0, True
    own, own_forward = requests(torch.ops.aten._flash_attention_forward, q, k, v, *lengths, False)
    _, own_backward = requests(
        torch.ops.aten._flash_attention_backward, grad, q, k, v, own[0], own[1], *lengths, own[2], own[3]
    )
    return [forward, backward], [own_forward, own_backward]


def in_one_row(version):
    """Returns the requests and results' shapes of two sequences in one row, of fewer keys, in heads of 100 numbers."""
    stand_in.VERSION = version
    size = 100 if version < (2, 7) else 104
    grad, q, _, _ = tensors(300, 8, size)
    _, _, k, v = tensors(300, 2, size)
    starts = torch.tensor([0, 100, 300], dtype=torch.int32, device="cuda")
    between = (None,) * {5: 2, 6: 4, 7: 4, 8: 4}[version[1]]
    more = () if version < (2, 6) else (0.0,)
    numbers = 200, 200, 0.0, size**-0.5, False, True, -1, 0, *more
    made, forward = requests(stand_in.varlen_fwd, q, k, v, None, starts, starts, *between, *numbers, False, None)
    if version < (2, 7):
        (_, q, k, v, out, sums, _, _), result = made, made[0]
    else:
        out, sums, _, _ = made
        result = out
    given, backward = requests(
        stand_in.varlen_bwd,
        *(grad, q, k, v, out, sums, None, None, None, starts, starts, None, *numbers, False, None, None),
    )
    return [list(result.shape), list(sums.shape), *(list(each.shape) for each in given)], forward, backward


what, argument = sys.argv[1], json.loads(sys.argv[2])
print(json.dumps(both(*argument) if what == "both" else in_one_row(tuple(argument))))
