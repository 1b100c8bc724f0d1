"""KV cache and states of a request, as vLLM and SGLang allocate them.

vLLM (v1/core/kv_cache_planning.py and kv_cache_interface.py of 0.33) divides layers into groups of equal size, so that
a block of any group has the same bytes: with 5 full and 25 sliding layers, six groups of five. A full layer holds all
tokens. A sliding layer holds its window and the tokens of the batches that are computed at the same time: two, because
vLLM schedules the next batch while the card computes. A state takes a block; models with states and attention keep
two or three states of each request, and blocks for the gated delta rule are multiples of 64 tokens.

SGLang (pool_configurator.py of 0.5.23) allocates the same tokens for all layers; some architectures have a second,
smaller pool for sliding layers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

BLOCK = 16  # tokens
BATCHES = 2  # that vLLM computes or schedules at the same time
_SMALLER_POOL = 0.8  # of SGLang's pool for sliding layers, as a share of the tokens of the other one
_TWO_POOLS = frozenset(
    {"Llama4ForConditionalGeneration", "GptOssForCausalLM", "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"}
)
_CLOSE = 1.5  # vLLM pads to the larger number of layers if it is less than so many times the smaller one


@dataclass(frozen=True, slots=True)
class Cache:
    """The layers of a model that hold keys and values or a state of a request.

    Attributes:
        mixers: Kind of each layer that keeps something, as in ``memdiag.serving.layers``.
        window: Tokens that sliding and chunked layers see.
        architecture: The model's class.
        states: States of a layer that vLLM keeps of a request beside attention, for its cache of prefixes.
        alignment: Tokens of which the blocks of vLLM are multiples beside such a state.
    """

    mixers: tuple[str, ...]
    window: int = 0
    architecture: str = ""
    states: int = 1
    alignment: int = BLOCK

    def request_bytes(
        self,
        tokens: int,
        token_bytes: float,
        state_bytes: int = 0,
        batch: int = 0,
        engine: Literal["vllm", "sglang"] = "vllm",
    ) -> float:
        """Returns the bytes of one request on each card.

        Args:
            tokens: Length of the request.
            token_bytes: Bytes of one token in one layer.
            state_bytes: Bytes of the state in one layer that has one.
            batch: Most tokens in a batch.
            engine: The engine.
        """
        counts = Counter(mixer for mixer in self.mixers if mixer != "none")
        if not counts:
            return 0.0
        if engine == "sglang":
            return self._in_pools(counts, tokens, token_bytes, state_bytes)
        block = self._block_tokens(token_bytes, state_bytes)
        page = block * token_bytes if token_bytes else float(state_bytes)
        size = _group_size(counts)
        blocks = sum(-(-num // size) * self._blocks(kind, tokens, batch, block) for kind, num in counts.items())
        return blocks * size * page

    def _blocks(self, kind: str, tokens: int, batch: int, block: int) -> int:
        if kind == "full":
            return -(-tokens // block)
        if kind == "sliding":
            return -(-min(self.window - 1 + BATCHES * batch, tokens) // block) + 1
        if kind == "chunked":
            return -(-min(self.window + BATCHES * batch, tokens) // block)
        return self.states

    def _block_tokens(self, token_bytes: float, state_bytes: int) -> int:
        """Returns the tokens of a block: vLLM lengthens the blocks of attention until a state fits."""
        if not state_bytes or not token_bytes:
            return BLOCK
        return self.alignment * -(-state_bytes // round(self.alignment * token_bytes))

    def _in_pools(self, counts: Counter[str], tokens: int, token_bytes: float, state_bytes: int) -> float:
        full, local = counts["full"], counts["sliding"] + counts["chunked"]
        share = _SMALLER_POOL if full and self.architecture in _TWO_POOLS else 1.0
        states = sum(counts.values()) - full - local
        return tokens * token_bytes * (full + share * local) + states * state_bytes


def _group_size(counts: Counter[str]) -> int:
    least, most = min(counts.values()), max(counts.values())
    return most if most < least * _CLOSE else least
