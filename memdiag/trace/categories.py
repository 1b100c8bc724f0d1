"""Infers the category of each tensor (parameter, gradient, activation, …) from its call site and lifetime.

Reports say that the category is inferred. Categories recorded by the source are kept (but see input). A tensor without
evidence stays unknown. The rules are:

* parameter: retained, and moved, loaded, or allocated by a module's constructor before training; or allocated before
  training in another way with the size of a gradient; or live throughout, if there are as many tensors of that size as
  gradients;
* optimizer state: allocated in an optimizer's step (or constructor) and live after it; or live before, and replaced in
  one;
* gradient: allocated in backward and live after it; or freed by ``zero_grad()``; or moved by ``Module._apply`` right
  after its parameter;
* activation: allocated in forward and live after it (a tensor that also outlives the next step stays unknown); or
  allocated between two forwards and freed in backward; or allocated in backward and freed in a later backward of the
  step, unless it may be the gradient of a weight (a gradient of the gradients needs it: ``create_graph=True``); or
  allocated in backward, if more tensors of its size are live at once than weights have gradients;
* input: allocated between two steps, before the forward that uses it. After a forward without a backward, and after a
  backward of the same step, a program also computes with the results, such as gradients of each sample, so there only
  call sites count that allocate inputs elsewhere too. A tensor that a recorder saw enter a model is none if a forward
  allocated it: the output of another model, computed without gradients. A tensor from the same call site as such a
  tensor is input too, also if no model has read it yet;
* temporary: freed within the visit of the phase in which it was allocated;
* KV cache: allocated by a function, or in a file, with such a name; in forward, only if no backward follows in its
  life (some models fill a cache in training, too, and backward needs these tensors);
* workspace: requested by a library (frames, sizes and order; see workspaces.py), retained or for one convolution;
* collective: identified by frames of the libraries that request it, also the buckets of DistributedDataParallel, unless
  a recorder saw gradients in them (gradient_as_bucket_view).

Tensors that are live at the end of the trace get the category of earlier tensors with the same stack and size, if there
are any. One that a forward allocated and that has outlived all of them is an activation.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from memdiag.trace import schema
from memdiag.trace.earlier_steps import site_key
from memdiag.trace.evidence import BACKWARD, FORWARD, INITIALISATION, OPTIMIZER, OUTSIDE, UNKNOWN, StackEvidence
from memdiag.trace.lifetimes import Lives
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array
from memdiag.trace.workspaces import blas_workspaces, convolution_workspaces

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


def infer(
    device: DeviceTrace, lives: Lives, evidence: StackEvidence, *, is_cuda: bool, planned: Collection[int] = ()
) -> Array:
    """Returns the category (int8, index into CATEGORIES) of every tensor; categories from the source are kept.

    Args:
        device: The device.
        lives: Allocation and free of its tensors.
        evidence: The evidence from the stacks.
        is_cuda: Whether it is a GPU, where cuBLAS and cuDNN have workspaces.
        planned: Sizes of the workspaces that cuDNN planned on a simulated device.
    """
    tensors = device.tensors
    stack, born = tensors.stack, lives.phase_alloc
    stays = ~lives.same_visit
    decided = stays & ~lives.open
    # a closure that the optimizer calls runs a forward and a backward inside the step
    in_step = evidence.optimizer[stack] & ~np.isin(evidence.marker[stack], (FORWARD, BACKWARD))
    in_passes = np.isin(evidence.marker[stack], (FORWARD, BACKWARD, OPTIMIZER))
    survived = lives.steps_survived
    # only frees by zero_grad() have a stack outside the other phases
    zeroed = evidence.marker[tensors.free_stack] == OUTSIDE
    replaced = lives.before & (born == UNKNOWN) & evidence.optimizer[tensors.free_stack]
    outlasts = lives.kept | (lives.step_free > 0)
    making = evidence.moving[stack] | evidence.building[stack]
    loaded = (born == INITIALISATION) | evidence.moving[stack] | lives.before & (evidence.loading[stack] | making)
    moved = _moved_gradients(device, evidence.apply_line[stack])
    # DistributedDataParallel requests buckets for the gradients in its constructor, and again in a later forward
    buckets = evidence.reducer[stack] & stays
    workspace = stays & evidence.workspace[stack]
    if is_cuda:
        workspace |= stays & blas_workspaces(device, lives, evidence)
        workspace |= convolution_workspaces(device, evidence, planned)
    waits = (born == OUTSIDE) & stays & (lives.next_phase == FORWARD) & (survived <= 1)
    saved = (born == FORWARD) & stays & (survived <= 1)
    conditions = {
        _WORKSPACE: workspace,
        _OPTIMIZER_STATE: evidence.state[stack] & outlasts | (in_step | (born == OPTIMIZER)) & decided | replaced,
        _KV_CACHE: evidence.kv_cache[stack] & stays & ~in_passes | _caches(evidence.kv_cache[stack], lives),
        _PARAMETER: loaded & outlasts & making & ~moved & ~buckets,
        _GRADIENT: (born == BACKWARD) & decided & ~(lives.before & (lives.phase_free == BACKWARD))
        | zeroed & (born != FORWARD)
        | moved & outlasts,
        _COLLECTIVE: evidence.collective[stack] & ~(evidence.redistribution[stack] & saved) | buckets,
        _ACTIVATION: saved,
        _INPUT: _inputs(waits, tensors.category, lives, stack),
        _TEMPORARY: lives.same_visit | loaded & (lives.phase_free == INITIALISATION),
    }
    category = np.select(list(conditions.values()), list(conditions), _UNKNOWN).astype(np.int8)
    category[waits & (category == _UNKNOWN) & (lives.phase_free == BACKWARD)] = _ACTIVATION
    # An earlier forward saved it, so the first backward of the trace frees it.
    category[(category == _UNKNOWN) & lives.before & (born == UNKNOWN) & (lives.phase_free == BACKWARD)] = _ACTIVATION
    category = _like_earlier(category, lives, stack, tensors.requested_bytes)
    category[_like_gradients(category, lives, tensors.requested_bytes)] = _PARAMETER
    known = np.where(tensors.category != _UNKNOWN, tensors.category, category)
    category[_saved_by_backward(known, lives, tensors.requested_bytes)] = _ACTIVATION
    category[_kept_by_graph(device, category, lives)] = _ACTIVATION
    gradients = tensors.requested_bytes[category == _GRADIENT]
    rows = np.flatnonzero((category == _UNKNOWN) & loaded & outlasts)
    category[rows[np.isin(tensors.requested_bytes[rows], gradients)]] = _PARAMETER
    category[_waiting_batches(category, tensors.category, lives, stack)] = _INPUT
    is_output = (tensors.category == _INPUT) & (born == FORWARD) & ~lives.before
    return np.where((tensors.category != _UNKNOWN) & ~is_output, tensors.category, category)


def _caches(named: Array, lives: Lives) -> Array:
    """Returns which tensors that forward allocated are keys and values of a cache.

    Backward needs those of a training. If memory ran out in a forward, only earlier caches show that none follows.

    Args:
        named: The tensors allocated by a function, or in a file, with the name of a cache.
        lives: Allocation and free of the tensors.
    """
    cached: Array = named & (lives.phase_alloc == FORWARD) & ~lives.same_visit & ~lives.sees_backward
    return cached if (cached & ~lives.open).any() else np.zeros_like(cached)


def _inputs(waits: Array, recorded: Array, lives: Lives, stack: Array) -> Array:
    """Returns which tensors are input batches.

    Args:
        waits: The tensors that are allocated outside of forward, backward and the optimizer, and live in the next
            forward.
        recorded: Per tensor, the category from the source.
        lives: Allocation and free of the tensors.
        stack: Per tensor, its call site.
    """
    after_backward = (lives.previous_phase == BACKWARD) & (lives.previous_step == lives.step_alloc)
    follows = (lives.previous_phase == FORWARD) | after_backward
    is_input = waits & ~follows | (recorded == _INPUT) & (lives.phase_alloc == OUTSIDE)
    sites = np.unique(stack[is_input | (lives.phase_alloc == INITIALISATION)])
    sites = sites[sites >= 0] if len(sites) > 1 else sites  # missing stacks are no call site, unless all are missing
    if not len(sites):  # the trace begins in the middle, and nothing is allocated between two steps
        follows &= ~after_backward
    inputs: Array = waits & (~follows | np.isin(stack, sites))
    return inputs


def _waiting_batches(category: Array, recorded: Array, lives: Lives, stack: Array) -> Array:
    """Returns which tensors are batches that no model has read: a recorder saw others of their call site enter one.

    A program that moves its whole data set to the device at the start has such batches.
    """
    prepared = np.isin(lives.phase_alloc, (OUTSIDE, INITIALISATION)) & (stack >= 0)
    sites = np.unique(stack[prepared & (recorded == _INPUT)])
    waiting: Array = prepared & (category == _UNKNOWN) & (recorded == _UNKNOWN) & np.isin(stack, sites)
    return waiting


def _saved_by_backward(category: Array, lives: Lives, size: Array) -> Array:
    """Returns the rows of tensors that one backward saves for another one: the gradient of a gradient is computed.

    Gradients of weights also wait from backward to backward, if a sharded model accumulates them before it reduces
    them. Those have the size of a weight, which a collective may have gathered, and are no more than there are weights.
    """
    saved = (category == _GRADIENT) & ~lives.before & ~lives.kept & ~lives.same_visit
    saved &= (lives.phase_alloc == BACKWARD) & (lives.phase_free == BACKWARD) & (lives.steps_survived == 0)
    rows = np.flatnonzero(saved)
    weights = np.sort(size[np.isin(category, (_PARAMETER, _COLLECTIVE))])
    num_weights = np.searchsorted(weights, size[rows], "right") - np.searchsorted(weights, size[rows], "left")
    _, group, num_saved = np.unique(
        np.column_stack((size[rows], lives.step_alloc[rows])), axis=0, return_inverse=True, return_counts=True
    )
    chosen: Array = rows[num_saved[group.reshape(-1)] > num_weights]
    return chosen


def _kept_by_graph(device: DeviceTrace, category: Array, lives: Lives) -> Array:
    """Returns the rows of tensors that one backward saves for another one that does not follow.

    A program evaluates a gradient of gradients, as a network for a differential equation does. Programs also keep
    gradients that are not in ``.grad``, for example one for each sample and weight. They have a multiple of a weight's
    size, and there are no more of them at once than weights.
    """
    tensors = device.tensors
    weights, num_weights = np.unique(tensors.requested_bytes[tensors.category == _PARAMETER], return_counts=True)
    unseen = (category == _GRADIENT) & (tensors.category == _UNKNOWN) & (lives.phase_alloc == BACKWARD)
    rows = np.flatnonzero(unseen & ~lives.before & ~np.isin(tensors.requested_bytes, weights))
    if not len(weights) or not len(rows):
        return rows[:0]
    key = np.column_stack((tensors.requested_bytes[rows], lives.step_alloc[rows]))
    kinds, kind, number = np.unique(key, axis=0, return_inverse=True, return_counts=True)
    rows, chosen = rows[np.argsort(kind.reshape(-1), kind="stable")], np.zeros(len(rows), bool)
    for (size, _), end, count in zip(kinds, np.cumsum(number), number, strict=True):
        most = max(num_weights[size % np.maximum(weights, 1) == 0].sum(), 1) if count > 1 else count
        if count > most:
            same = rows[end - count : end]
            freed = np.sort(tensors.free_requested_at[same])
            alive = np.arange(1, count + 1) - np.searchsorted(freed, np.sort(tensors.alloc_at[same]))
            chosen[end - count : end] = alive.max() > most
    kept: Array = rows[chosen]
    return kept


def _moved_gradients(device: DeviceTrace, line: Array) -> Array:
    """Returns which tensors are gradients that ``Module._apply`` moved.

    ``_apply`` moves each parameter, then its gradient on a later line, then the module's buffers on another line. So
    every tensor moved by the gradient line has the size of the parameter moved just before, and most parameters have
    one.

    Args:
        device: The device.
        line: Per tensor, the line of ``_apply`` that moved it, or 0.
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
    """Returns ``category`` with open tensors set to the majority category of earlier ones of their stack and size."""
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
    longest = np.zeros(len(wanted), np.int64)
    np.maximum.at(longest, place[same], lives.num_allocs[earlier[same]])
    row = np.searchsorted(wanted, key[unsure])
    # in forward, what outlives all earlier ones is saved: autocast converts the input of a softmax at its call site
    outlives = (lives.phase_alloc[unsure] == FORWARD) & (lives.num_allocs[unsure] > longest[row])
    heard = (votes[row].sum(axis=1) > 0) & ~outlives
    result = category.copy()
    result[unsure[heard]] = votes[row[heard]].argmax(axis=1)
    return result


def _like_gradients(category: Array, lives: Lives, size: Array) -> Array:
    """Returns the rows of parameters, recognised by their number.

    They are live throughout the trace, and there are as many of their size as gradients of that size per step.
    """
    gradients = np.flatnonzero(category == _GRADIENT)
    rows = np.flatnonzero((category == _UNKNOWN) & lives.before & lives.kept)
    if not len(gradients) or not len(rows):
        return rows[:0]
    step = np.bincount(lives.step_alloc[gradients] + 1).argmax() - 1  # -1: live before the trace began
    sizes, wanted = np.unique(size[gradients[lives.step_alloc[gradients] == step]], return_counts=True)
    place = np.minimum(np.searchsorted(sizes, size[rows]), len(sizes) - 1)
    same = sizes[place] == size[rows]
    there = np.bincount(place[same], minlength=len(sizes))
    chosen: Array = rows[same & (there == wanted)[place]]
    return chosen
