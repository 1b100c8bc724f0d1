"""What each tensor is for (parameter, gradient, optimizer state, activation, …), inferred from where it was made and how long it lives.

An inference, not a mark: a report says so. What a source itself knows is kept, and what cannot be told stays unknown:

* parameter: moved, loaded, or made by the constructor of a module before training, and kept; or made before training in any other
  way and of the size of a gradient; or there all along, with as many of that size as there are gradients;
* optimizer state: made in an optimizer's step (or its constructor), and alive after it; or there before, and replaced
  in one;
* gradient: made in backward, and alive after it; or freed by ``zero_grad()``; or moved by ``Module._apply`` right after
  its parameter;
* activation: made in forward, and alive after it (of what outlives the next step as well, nothing can be told);
* input: made between two steps, before the forward that uses it;
* temporary: dies in the stretch of a phase in which it was made;
* KV cache: made by a function, or in a file, that is named after it;
* workspace, collective: by the frames of the libraries that ask for them.

What is still alive when the trace ends is judged by earlier tensors of the same stack and size, where there are any.
"""

from __future__ import annotations

import numpy as np

from memdiag.trace import schema
from memdiag.trace.earlier_steps import site_key
from memdiag.trace.evidence import BACKWARD, FORWARD, INITIALISATION, OPTIMIZER, OUTSIDE, UNKNOWN, StackEvidence
from memdiag.trace.lifetimes import Lives
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array

(
    _UNKNOWN,
    _PARAMETER,
    _GRADIENT,
    _OPTIMIZER_STATE,
    _ACTIVATION,
    _INPUT,
    _TEMPORARY,
    _COLLECTIVE,
    _WORKSPACE,
    _KV_CACHE,
) = range(len(schema.CATEGORIES))

# cuBLAS's default workspaces (parseChosenWorkspaceSize in CublasHandlePool.cpp). No tensor has the size of
# :4096:2:16:8; Hopper's 32 MiB is a common size, and counts only for what is made in a pass, in one of its first
# matmuls, and kept for steps.
CUBLAS_WORKSPACE = 8_519_680
HOPPER_WORKSPACE = 33_554_432


def infer(device: DeviceTrace, lives: Lives, evidence: StackEvidence) -> Array:
    """Returns the category (int8, index into CATEGORIES) of every tensor; what the source said is kept."""
    tensors = device.tensors
    stack, born = tensors.stack, lives.phase_alloc
    stays = ~lives.same_visit
    decided = stays & ~lives.open
    in_step, survived = evidence.optimizer[stack], lives.steps_survived
    zeroed = (
        evidence.marker[tensors.free_stack] == OUTSIDE
    )  # only zero_grad() is told by a stack to be outside of the other phases
    replaced = lives.before & (born == UNKNOWN) & evidence.optimizer[tensors.free_stack]
    outlasts = lives.kept | (lives.step_free > 0)
    making = evidence.moving[stack] | evidence.building[stack]
    loaded = (born == INITIALISATION) | evidence.moving[stack] | lives.before & (evidence.loading[stack] | making)
    moved = _moved_gradients(device, evidence.apply_line[stack])
    in_pass = (born == FORWARD) | (born == BACKWARD)
    matmul = (tensors.requested_bytes == CUBLAS_WORKSPACE) & (in_pass | lives.before)
    matmul |= (tensors.requested_bytes == HOPPER_WORKSPACE) & in_pass & lives.kept & (survived > 1)
    conditions = {
        _WORKSPACE: stays & (evidence.workspace[stack] | matmul),
        _OPTIMIZER_STATE: evidence.state[stack] & outlasts | (in_step | (born == OPTIMIZER)) & decided | replaced,
        _KV_CACHE: evidence.kv_cache[stack] & stays,
        _PARAMETER: loaded & outlasts & making & ~moved,
        _GRADIENT: (born == BACKWARD) & decided & ~(lives.before & (lives.phase_free == BACKWARD))
        | zeroed & (born != FORWARD)
        | moved & outlasts,
        _COLLECTIVE: evidence.collective[stack],
        _ACTIVATION: (born == FORWARD) & stays & (survived <= 1),
        _INPUT: (born == OUTSIDE) & stays & (lives.next_phase == FORWARD) & (survived <= 1),
        _TEMPORARY: lives.same_visit | loaded & (lives.phase_free == INITIALISATION),
    }
    category = np.select(list(conditions.values()), list(conditions), _UNKNOWN).astype(np.int8)
    # saved by an earlier forward, so freed by the first backward of the trace
    category[(category == _UNKNOWN) & lives.before & (born == UNKNOWN) & (lives.phase_free == BACKWARD)] = _ACTIVATION
    category = _like_earlier(category, lives, stack, tensors.requested_bytes)
    category[_like_gradients(category, lives, tensors.requested_bytes)] = _PARAMETER
    gradients = tensors.requested_bytes[category == _GRADIENT]
    category[(category == _UNKNOWN) & loaded & outlasts & np.isin(tensors.requested_bytes, gradients)] = _PARAMETER
    return np.where(tensors.category != _UNKNOWN, tensors.category, category)


def _moved_gradients(device: DeviceTrace, line: Array) -> Array:
    """Returns which tensors are gradients that ``Module._apply`` moved; ``line``: the line of it that moves each tensor, or 0.

    ``_apply`` moves each parameter, then its gradient on a later line, then the module's buffers on another. So all that the line of
    gradients moves is as large as the parameter that was moved just before, and most parameters have one.
    """
    tensors = device.tensors
    found = np.zeros(len(tensors), bool)
    rows = np.flatnonzero((line > 0) & (tensors.alloc_at >= 0))
    rows = rows[np.argsort(tensors.alloc_at[rows], kind="stable")]
    lines = np.unique(line[rows])
    if len(lines) < 2:
        return found
    size, at = tensors.requested_bytes[rows], line[rows]
    follows = np.append(False, (size[1:] == size[:-1]) & (at[:-1] == lines[0]))
    for each in lines[1:]:
        mine = at == each
        if follows[mine].all() and 2 * mine.sum() > (at == lines[0]).sum():
            found[rows[mine]] = True
    return found


def _like_earlier(category: Array, lives: Lives, stack: Array, size: Array) -> Array:
    """Returns ``category`` with each open tensor taken for what most earlier ones of its stack and size were."""
    sure = np.isin(category, (_WORKSPACE, _PARAMETER))
    unsure = np.flatnonzero(lives.open & ~sure)
    if not len(unsure):
        return category
    key = site_key(stack, lives.phase_alloc, size)
    wanted = np.unique(key[unsure])
    earlier = np.flatnonzero(~lives.open & ~lives.before)
    place = np.minimum(np.searchsorted(wanted, key[earlier]), len(wanted) - 1)
    same = wanted[place] == key[earlier]
    votes = np.zeros((len(wanted), len(schema.CATEGORIES)), np.int64)
    np.add.at(votes, (place[same], category[earlier[same]]), 1)
    row = np.searchsorted(wanted, key[unsure])
    heard = votes[row].sum(axis=1) > 0
    result = category.copy()
    result[unsure[heard]] = votes[row[heard]].argmax(axis=1)
    return result


def _like_gradients(category: Array, lives: Lives, size: Array) -> Array:
    """Returns the rows that are parameters by this: they are there all along, and as many of that size as gradients are made a step."""
    gradients = np.flatnonzero(category == _GRADIENT)
    rows = np.flatnonzero((category == _UNKNOWN) & lives.before & lives.kept)
    if not len(gradients) or not len(rows):
        return rows[:0]
    step = np.bincount(lives.step_alloc[gradients] + 1).argmax() - 1  # -1: those that were there before the trace
    sizes, wanted = np.unique(size[gradients[lives.step_alloc[gradients] == step]], return_counts=True)
    place = np.minimum(np.searchsorted(sizes, size[rows]), len(sizes) - 1)
    same = sizes[place] == size[rows]
    there = np.bincount(place[same], minlength=len(sizes))
    chosen: Array = rows[same & (there == wanted)[place]]
    return chosen
