"""Finds the workspaces of cuBLAS and of convolutions among tensors whose stacks have no C++ frames.

For cuBLAS, PyTorch allocates a workspace for each thread and stream, in the first matrix multiplication there, right
after its output, and keeps it (getNewWorkspace in CUDABlas, parseChosenWorkspaceSize in CublasHandlePool.cpp). A
training has two: of the thread that runs the forward, and of autograd's thread.

Few other tensors have the default size of ``:4096:2:16:8``, and none is retained. On Hopper and newer GPUs, the size is
32 MiB, a common size, so these workspaces are found by their order:

* forward: the first retained tensor of this size that follows a tensor of the same call site (the output);
* backward: the first retained tensor of this size, or the second, if both are adjacent: then the first is the output of
  the multiplication, the gradient of a weight of this size. It may be in a later step than that of the forward, as in
  a training of several losses, the first of which multiplies nothing. A gradient recurs in each step.

For a convolution, PyTorch allocates a workspace after the result, and frees it before any other request (run_conv_plan
in Conv_v8.cpp). In backward, whose tensors have no stack, only a simulated device knows the sizes of workspaces.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from memdiag.trace.evidence import BACKWARD, FORWARD, SILENT, StackEvidence
from memdiag.trace.lifetimes import Lives
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array

CUBLAS_WORKSPACE = 8_519_680
HOPPER_WORKSPACE = 33_554_432


def blas_workspaces(device: DeviceTrace, lives: Lives, evidence: StackEvidence) -> Array:
    """Returns which tensors of a GPU are workspaces of cuBLAS, by their size and order (bool, one per tensor)."""
    size = device.tensors.requested_bytes
    sized: Array = (size == CUBLAS_WORKSPACE) & ~lives.same_visit
    large = size == HOPPER_WORKSPACE
    found = np.zeros(len(size), bool)
    # A GPU older than Hopper has workspaces of the other size. C++ frames identify workspaces without this rule.
    is_older = (sized & (lives.kept | lives.at_exit)).any()
    if not is_older and not evidence.workspace[device.tensors.stack[large]].any():
        program = _programs(lives, large)
        pairs = np.unique(np.column_stack((device.tensors.stream[large], program[large])), axis=0)
        for stream, thread in pairs.tolist():
            own = (device.tensors.stream == stream) & (program == thread)
            found[_of_stream(device, lives, evidence, own)] = True
    return found if found.any() else sized


def _programs(lives: Lives, large: Array) -> Array:
    """Returns the thread of the program for which each tensor was allocated; each has its own workspace.

    Autograd's threads have no number. They work for the main thread, or for the first other one if the main thread
    runs no model.
    """
    others = lives.thread[large & (lives.thread > 0)]
    runs_main = (large & (lives.thread == 0) & (lives.phase_alloc == FORWARD)).any()
    if runs_main or not len(others):
        return lives.thread
    return np.where(lives.thread == 0, others.min(), lives.thread)


def convolution_workspaces(device: DeviceTrace, evidence: StackEvidence, planned: Collection[int]) -> Array:
    """Returns which tensors of a GPU are workspaces of convolutions (bool, one per tensor).

    Args:
        device: The device.
        evidence: The evidence from the stacks.
        planned: Sizes of the workspaces that cuDNN planned on a simulated device; empty if they are unknown.
    """
    tensors = device.tensors
    is_brief = (tensors.alloc_at >= 0) & (tensors.free_requested_at == tensors.alloc_at + 1)
    in_passes = np.isin(evidence.marker[tensors.stack], (FORWARD, BACKWARD, SILENT))
    sizes = np.fromiter((size for size in planned if size), np.int64)
    found: Array = is_brief & (
        evidence.convolution[tensors.stack] | in_passes & np.isin(tensors.requested_bytes, sizes)
    )
    return found


def _of_stream(device: DeviceTrace, lives: Lives, evidence: StackEvidence, own: Array) -> list[int]:
    """Returns the rows of the workspaces of 32 MiB: of the forward and of autograd's thread.

    ``own`` marks the tensors of one stream and one thread of the program.
    """
    tensors, born = device.tensors, lives.phase_alloc
    made = evidence.loading | evidence.moving | evidence.kv_cache | evidence.state | evidence.optimizer
    sized = (tensors.requested_bytes == HOPPER_WORKSPACE) & own
    fits = sized & (lives.kept | lives.at_exit) & ~made[tensors.stack]
    rows = np.flatnonzero(own & ~lives.before)
    rows = rows[np.argsort(tensors.alloc_at[rows], kind="stable")]
    steps = lives.step_alloc[rows]
    # The first multiplication is in the first step, or the first with a forward on a stream that also copies batches.
    called_in = steps[(steps >= 0) & (born[rows] == FORWARD)] if tensors.stream[own].any() else steps[steps >= 0]
    is_wanted = fits[rows] & (steps <= called_in.min(initial=lives.last_step))
    in_backward = born[rows] == BACKWARD
    backward = _in_backward(rows, rows[is_wanted & in_backward])
    if not len(backward):
        backward = _in_later_backward(rows, rows[in_backward & sized[rows]], fits, lives.step_alloc)
    older = np.flatnonzero(fits & lives.before & (born == BACKWARD))
    if len(older):  # one is the workspace; several may be gradients
        backward = older if len(older) == 1 else older[:0]
    forward = np.flatnonzero(fits & lives.before & (born == FORWARD))
    if not len(forward):
        called = tensors.stack[rows]
        follows = is_wanted & np.append(False, (called[1:] == called[:-1]) & (called[1:] >= 0))
        forward = rows[follows & (born[rows] == FORWARD)][:1]
        if not len(forward) and (sized & (born == FORWARD)).sum() == 1:  # code of Inductor allocates the output before
            forward = rows[is_wanted & (born[rows] == FORWARD)]
        if not len(forward) and len(backward):  # a model that is not a Module
            forward = rows[follows & (born[rows] != BACKWARD)][:1]
    if not len(forward):  # without a multiplication, there is no workspace in backward either
        return []
    return [*map(int, forward if len(forward) == 1 else ()), *map(int, backward)]


def _in_backward(rows: Array, retained: Array) -> Array:
    """Returns the workspace of autograd's thread (one row, or none).

    Args:
        rows: All tensors of the stream, in order of allocation.
        retained: Those of the size of a workspace that the first backward allocates and retains.
    """
    if not len(retained):
        return retained
    second = np.flatnonzero(rows == retained[0])[0] + 1
    is_adjacent = second < len(rows) and rows[second] in retained
    return retained[1:2] if is_adjacent else retained[:1]


def _in_later_backward(rows: Array, sized: Array, fits: Array, step: Array) -> Array:
    """Returns the workspace of autograd's thread if its first multiplication is after the first step.

    Args:
        rows: All tensors of the stream, in order of allocation.
        sized: Those of the size of a workspace that backward allocates, in order of allocation.
        fits: Which tensors may be a workspace.
        step: The step in which each tensor is allocated.
    """
    first, second = sized[:1], sized[1:2]
    if len(first) and fits[first[0]]:
        return _in_backward(rows, sized[fits[sized] & (step[sized] == step[first[0]])])
    # the output of the multiplication, the gradient of a weight of this size, is freed
    is_adjacent = len(second) and np.flatnonzero(rows == first[0])[0] + 1 == np.flatnonzero(rows == second[0])[0]
    return second if is_adjacent and fits[second[0]] else second[:0]
