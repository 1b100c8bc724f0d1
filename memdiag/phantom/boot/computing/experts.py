"""Routes tokens to experts by an assumption (``--expert-load``), since no router is computed on a simulated device.

A router chooses experts with ``topk`` over the scores of all experts. memdiag writes expert numbers into the result of
that operator, with the stated number of tokens for each expert. They are known values from then on, so the operators
that follow (``bincount``, ``histc``, ``where``, ``nonzero``, ``sort``, ``cumsum``, copies to the host) compute the
counts that the program reads. The scores of the chosen experts stay unknown.

Only the values are assumed: the operators run as usual, and the allocator receives the program's requests.
"""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any, Optional

from .operator import Operator, Work

VARIABLE = "MEMDIAG_PHANTOM_EXPERTS"  # the assumption, as JSON; see memdiag.phantom.experts
INTEGER_BYTES = 256 << 20  # largest tensor of integers that is computed: masks have one element per token and expert
_MOST_EXPERTS = 1024  # a topk over more entries is no router's, for example that of a vocabulary
_MOST_PLACES = 12
_FULL = 1.0


class Experts:
    """The assumed load of experts in one process.

    Args:
        torch: The module.
        said: The assumption: "load" (its text), "skew" (or None), "counts" (relative loads, or None), "experts" (number
            of experts of the routers that are meant, or None for all).
    """

    def __init__(self, torch: Any, said: dict[str, Any]) -> None:
        self._torch = torch
        self._said = said
        self._calls = 0
        self._places: dict[tuple[str, int, int], dict[str, Any]] = {}
        self._chosen: dict[tuple[int, int, int], Any] = {}

    def num_experts_of(self, scores: Any, count: int, dim: int, is_largest: bool) -> int:
        """Returns the number of experts if a ``topk`` is a router's, else 0.

        Args:
            scores: Its input, one row per token.
            count: Number of experts that it chooses for each token.
            dim: Its dimension.
            is_largest: Whether it chooses the largest scores.
        """
        experts = int(scores.shape[-1]) if scores.dim() >= 2 else 0
        counts = self._said.get("counts")
        meant = self._said.get("experts") or (len(counts) if counts else None)
        is_last = dim in (-1, scores.dim() - 1)
        is_router = is_largest and is_last and 1 < experts <= _MOST_EXPERTS and 0 < count <= experts
        return experts if is_router and meant in (None, experts) else 0

    def choose(self, indices: Any, experts: int) -> Any:
        """Returns expert numbers of the shape of ``indices`` (…, experts per token), on the CPU."""
        per_token = int(indices.shape[-1])
        tokens = indices.numel() // per_token
        key = (tokens, per_token, experts)
        found = self._chosen.get(key)
        if found is None:
            if len(self._chosen) > _MOST_PLACES:
                self._chosen.clear()
            counts = counts_for(tokens, per_token, self._shares(experts, per_token))
            found = self._chosen[key] = (self._spread(counts, tokens, per_token), counts)
        self._note(key, found[1])
        return found[0].view(indices.shape)

    def _shares(self, experts: int, per_token: int) -> list[float]:
        """Returns the fraction of all tokens that each expert receives; the sum is the number of experts per token."""
        relative = self._said.get("counts")
        if relative is not None:
            return limited_shares(relative, per_token)
        skew = self._said.get("skew") or 0.0
        even = (1 - skew) * per_token / experts
        return [even + skew if expert < per_token else even for expert in range(experts)]

    def _spread(self, counts: list[int], tokens: int, per_token: int) -> Any:
        """Returns a matrix (tokens, experts per token) in which each expert occurs as often as ``counts`` says.

        An expert's entries follow each other, and no expert has more than one per token. So no token gets an expert
        twice. Neighbouring tokens get different experts: a part of the batch has nearly the load of all of it.
        """
        torch = self._torch
        repeats = torch.tensor(counts, dtype=torch.int64, device="cpu")
        entries = torch.arange(len(counts), device="cpu").repeat_interleave(repeats)
        stride = _coprime_stride(tokens)
        rows = torch.arange(tokens, device="cpu") * stride % max(tokens, 1)
        chosen = torch.empty(tokens, per_token, dtype=torch.int64, device="cpu")
        chosen[rows] = entries.view(per_token, tokens).t()
        return chosen

    def _note(self, key: tuple[int, int, int], counts: list[int]) -> None:
        tokens, per_token, experts = key
        self._calls += 1
        place = (_program_place(), experts, per_token)
        entry = self._places.get(place)
        if entry is None:
            if len(self._places) == _MOST_PLACES:
                return
            entry = self._places[place] = {
                "where": place[0],
                "experts": experts,
                "per_token": per_token,
                "tokens": 0,
                "most": 0,
                "fewest": 0,
                "count": 0,
            }
        entry["count"] += 1
        if tokens >= entry["tokens"]:
            entry.update(tokens=tokens, most=max(counts), fewest=min(counts))

    def facts(self) -> dict[str, Any]:
        """Returns the assumption and where it was used, for the trace."""
        return {"load": self._said.get("load"), "count": self._calls, "places": list(self._places.values())}


class Router(Operator):
    """``topk``, whose result is the assumed load if it is a router's."""

    def _prepare(self, work: Work, args: Any, kwargs: Any) -> tuple[int, Any]:
        given = {name: args[at] if at < len(args) else kwargs.get(name) for name, at in self._arguments.items()}
        count, dim, is_largest = given["k"], given.get("dim"), given.get("largest")
        work.experts = self.machine.experts.num_experts_of(
            given["self"], int(count), -1 if dim is None else dim, is_largest is not False
        )
        return (-1, None) if work.experts else super()._prepare(work, args, kwargs)

    def _finish(self, work: Work, results: Any, real: Any) -> Any:
        if not work.experts:
            return super()._finish(work, results, real)
        try:
            with self.machine.alone():
                values, indices = real
                if indices.numel():
                    self.machine.contents.forget(values)
                    self.machine.contents.write(indices, self.machine.experts.choose(indices, work.experts))
                work.outcome = "computed"
        except Exception as error:  # noqa: BLE001 - the program continues
            self._note(work, error)
        return real


def assumed(torch: Any) -> Optional[Experts]:
    """Returns the assumed load of experts, or None if the command has none."""
    text = os.environ.get(VARIABLE)
    return Experts(torch, json.loads(text)) if text else None


def limited_shares(relative: list[float], per_token: int) -> list[float]:
    """Returns the fraction of all tokens for each expert from relative loads.

    No expert receives a token twice, so its fraction is at most 1. The others receive the rest, in proportion.
    """
    shares = [0.0] * len(relative)
    full: set[int] = set()
    while True:
        left = [expert for expert in range(len(relative)) if expert not in full]
        total = sum(relative[expert] for expert in left)
        room = per_token - len(full)
        for expert in left:  # if all remaining loads are 0, these experts share the rest equally
            part = relative[expert] / total if total else 1 / len(left)
            shares[expert] = room * part
        over = {expert for expert in left if shares[expert] > _FULL}
        if not over:
            return shares
        full |= over
        for expert in over:
            shares[expert] = _FULL


def counts_for(tokens: int, per_token: int, shares: list[float]) -> list[int]:
    """Returns the number of tokens of each expert, with the sum ``tokens * per_token`` (largest remainders)."""
    exact = [min(share, _FULL) * tokens for share in shares]
    counts = [min(math.floor(one + 1e-9), tokens) for one in exact]
    left = tokens * per_token - sum(counts)
    order = sorted(range(len(counts)), key=lambda expert: (counts[expert] - exact[expert], expert))
    while left > 0:
        for expert in order:
            if left > 0 and counts[expert] < tokens:
                counts[expert] += 1
                left -= 1
    return counts


def _coprime_stride(tokens: int) -> int:
    """Returns a step through the tokens that reaches each once and spreads neighbours (the golden ratio)."""
    stride = max(round(tokens * 0.618), 1)
    while math.gcd(stride, tokens) > 1:
        stride += 1
    return stride


def _program_place() -> str:
    """Returns the program's line that called the router, or the library's if the program has none on the stack."""
    here = os.path.dirname(os.path.abspath(__file__))
    frame: Any = sys._getframe(1)
    found = ""
    while frame is not None:
        file = frame.f_code.co_filename
        is_torch = f"{os.sep}torch{os.sep}" in file
        if not file.startswith((here, "<")) and not is_torch:
            found = f"{file}:{frame.f_lineno}"
            break
        frame = frame.f_back
    return found or "a call outside of Python"
