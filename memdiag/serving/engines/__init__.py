"""Engines: the start-up log of one inference server each.

An engine is a module with

* ``NAME`` (in JSON) and ``PROGRAM`` (for people);
* ``ANCHORS``: texts, at least one of which is in each line that has a value;
* ``SIGNS``: texts that only this engine's logs have; the first engine here with a sign in the log reads it;
* ``RULES``, ``START`` and ``KEPT``, see ``memdiag.serving.rules``;
* ``card(values, server, total)``: returns the account of a card; ``total`` is the size of the card that the user gave;
* ``facts(server, cards)``: returns the capacity for requests and the settings, as ``ServerFacts``;
* ``fixes(case)``: yields the flags to change after a failure, with values, for a ``memdiag.serving.case.FailedStart``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from memdiag.registry import Registry
from memdiag.results.finding import Fix
from memdiag.results.serving import ServingCard
from memdiag.serving.rules import LineForm, LogValue, LogValues


@dataclass(frozen=True)
class ServerFacts:
    """Capacity for requests, and settings; None is unknown.

    Attributes:
        version: Version of the engine, or "".
        kv_tokens: Tokens in the KV cache.
        kv_blocks: Blocks in the KV cache.
        max_concurrency: Requests of ``max_model_len`` tokens that the cache holds.
        max_model_len: Longest request in tokens.
        settings: Memory settings, by their flag.
    """

    version: str = ""
    kv_tokens: int | None = None
    kv_blocks: int | None = None
    max_concurrency: float | None = None
    max_model_len: int | None = None
    settings: dict[str, float] = field(default_factory=dict)


class Engine(Protocol):
    """The log of one inference server; the module docstring describes the attributes."""

    NAME: str
    PROGRAM: str
    ANCHORS: Sequence[str]
    SIGNS: Sequence[str]
    RULES: Sequence[LineForm]
    START: re.Pattern[str] | None
    KEPT: Sequence[str]

    def card(self, values: LogValues, server: LogValues, total: LogValue | None) -> ServingCard | None:
        """Returns the account of a card, or None if the values are of no card."""

    def facts(self, server: LogValues, cards: Sequence[LogValues]) -> ServerFacts:
        """Returns the capacity for requests and the settings."""

    def fixes(self, case: Any) -> Iterable[Fix]:
        """Yields the flags to change, the best first."""


ENGINES: Registry[Engine] = Registry(
    "engine",
    Engine,
    {
        "ollama": "memdiag.serving.engines.ollama",
        "tensorrt-llm": "memdiag.serving.engines.tensorrt_llm",
        "sglang": "memdiag.serving.engines.sglang",
        "vllm-ascend": "memdiag.serving.engines.vllm_ascend",
        "vllm": "memdiag.serving.engines.vllm",
        "llama.cpp": "memdiag.serving.engines.llama_cpp",
    },
    "memdiag.engines",
)
