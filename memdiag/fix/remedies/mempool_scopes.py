"""Gives long-lived tensors a memory pool of their own (``MemPool``), so that they do not keep other segments in use.

Two kinds of scopes are tried: around the modules whose outputs outlive many calls, as features or caches that the
program collects, and around the optimizer steps that create states. memdiag offers the scopes only if a replay with
them needs less memory: free memory of one pool cannot serve another one, so most programs need more
(reports/mempool-modules.md).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from memdiag.fix.base import Proposal
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit
from memdiag.fix.structure import few
from memdiag.offload.passes import OPTIMIZER
from memdiag.text import phrase
from memdiag.trace.schema import CATEGORIES
from memdiag.trace.table import Array

NAME = "mempool-scopes"
_STATE = CATEGORIES.index("optimizer_state")
_MOSTLY = 0.5  # share of the bytes of a module's calls that must outlive them
_CALLS = 2  # calls of the same module that a long-lived output outlives


def propose(case: FixCase) -> Iterable[Proposal]:
    """Yields the remedy for modules with long-lived outputs, for optimizer states, and for both."""
    backend = case.trace.backend
    if backend not in {"cuda", "npu"} or case.subject.is_foreign or "expandable_segments" in (case.given.conf or ""):
        return
    modules, outputs = _modules(case)
    states = _with_states(case)
    scopes = [(modules, outputs, False), ([], states, True), (modules, np.union1d(outputs, states), True)]
    for paths, rows, has_states in scopes if len(outputs) and len(states) else scopes[:2]:
        if not len(rows):
            continue
        yield Proposal(
            NAME,
            phrase("fix.mempool-scopes"),
            few([*paths, *(["optimizer.step()"] if has_states else [])]),
            Edit(own_pool=frozenset(rows.tolist())),
            f"with torch.{backend}.use_mem_pool(pool):  # pool = torch.{backend}.MemPool(), kept by the program",
            phrase("fix.mempool-scopes.caveat"),
            phrase("fix.mempool-scopes.cost"),
            "mempool_scopes",
            {"modules": paths, "has_states": has_states},
        )


def _modules(case: FixCase) -> tuple[list[str], Array]:
    """Returns the innermost modules most of whose bytes outlive later calls of them, and all that they allocate."""
    tensors, spans = case.device.tensors, case.modules.spans
    inner = [path for path in spans if not any(other.startswith(f"{path}.") for other in spans)]
    order = np.argsort(tensors.alloc_at, kind="stable")
    born = tensors.alloc_at[order]
    paths, chosen = [], []
    for path in inner:
        begin, end = spans[path].T
        if len(begin) <= _CALLS:
            continue
        first, last = np.searchsorted(born, begin), np.searchsorted(born, end)
        rows = np.concatenate([order[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)])
        call = np.repeat(np.arange(len(begin)), last - first)
        later = np.append(begin[_CALLS:], np.full(_CALLS, case.device.num_events))[call]
        sizes = tensors.block_bytes[rows]
        stays = tensors.free_requested_at[rows] > later
        is_early = call < len(begin) - _CALLS
        if sizes[is_early].sum() and sizes[is_early & stays].sum() > _MOSTLY * sizes[is_early].sum():
            paths.append(path)
            chosen.append(rows)
    return paths, np.unique(np.concatenate(chosen)) if chosen else np.empty(0, np.int64)


def _with_states(case: FixCase) -> Array:
    """Returns what the optimizer steps allocate that create states, as rows in Tensors."""
    tensors, passes = case.device.tensors, case.passes
    rows = np.flatnonzero((tensors.phase_alloc == OPTIMIZER) & (tensors.alloc_at >= 0))
    number = passes.at(tensors.alloc_at[rows])
    creating = np.unique(number[tensors.category[rows] == _STATE])
    found: Array = rows[np.isin(number, creating)]
    return found
