"""Layers with a state of constant size for each request: parameters, and the state that vLLM and SGLang keep.

The names follow the papers and transformers: ``inner`` is the width in which a state-space layer computes, and the
convolution holds the last ``kernel - 1`` inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from memdiag.serving.configuration import Configuration

_BYTES = 2  # of a number in a 16-bit model


class StatefulLayer(Protocol):
    """A layer with a state."""

    @property
    def num_parameters(self) -> int:
        """Parameters of one layer."""

    def state_bytes(self, tp: int) -> int:
        """Returns the state of one request in one layer, on each of ``tp`` cards."""


class Mamba1:
    """A state-space layer of the first version (Mamba, Jamba)."""

    def __init__(self, config: Configuration) -> None:
        hidden = config.needed("hidden_size")
        self.hidden = hidden
        expand = config.get("mamba_expand", "expand") or 2
        self.inner = config.size("intermediate_size") if config.kind == "mamba" else int(expand * hidden)
        self.inner = self.inner or int(expand * hidden)
        self.state = int(config.get("mamba_d_state", "state_size", "ssm_state_size") or 16)
        self.kernel = int(config.get("mamba_d_conv", "conv_kernel") or 4)
        rank = config.get("mamba_dt_rank", "time_step_rank")
        self.rank = rank if isinstance(rank, int) else -(-hidden // 16)

    @property
    def num_parameters(self) -> int:
        """Parameters of one layer."""
        step = self.inner * (self.rank + 2 * self.state) + self.inner * (self.rank + 1)
        return 3 * self.hidden * self.inner + self.inner * (self.kernel + 1) + step + self.inner * (self.state + 1)

    def state_bytes(self, tp: int) -> int:
        """Returns the state of one request in one layer, on each of ``tp`` cards."""
        return self.inner // tp * (self.kernel - 1 + self.state) * _BYTES


class Mamba2:
    """A state-space layer of the second version (Mamba 2, Bamba, Granite 4, Nemotron-H, Falcon-H1)."""

    def __init__(self, config: Configuration) -> None:
        self.hidden = config.needed("hidden_size")
        expand = config.get("mamba_expand", "expand") or 2
        head = config.get("mamba_d_head", "mamba_head_dim", "mamba_headdim")
        heads = config.get("mamba_n_heads", "mamba_num_heads", "n_mamba_heads")
        if config.kind == "mamba2":
            head, heads = head or config.get("head_dim"), heads or config.get("num_heads")
        self.inner = config.size("mamba_d_ssm") or int(expand * self.hidden)
        self.head = head if isinstance(head, int) else 64
        self.heads = heads if isinstance(heads, int) else self.inner // self.head
        self.inner = self.heads * self.head
        self.state = int(config.get("mamba_d_state", "ssm_state_size", "state_size") or 128)
        self.groups = int(config.get("mamba_n_groups", "mamba_ngroups", "n_groups") or 1)
        self.kernel = int(config.get("mamba_d_conv", "conv_kernel") or 4)
        default = "float32" if config.kind == "nemotron_h" else ""
        self.is_32_bit = str(config.get("mamba_ssm_cache_dtype") or default) == "float32"

    @property
    def num_grouped(self) -> int:
        """Parameters of one layer that only as many cards divide as there are groups."""
        return 2 * self.groups * self.state * (self.hidden + self.kernel + 1)

    @property
    def num_parameters(self) -> int:
        """Parameters of one layer."""
        convolved = self.inner + 2 * self.groups * self.state
        projections = self.hidden * (self.inner + convolved + self.heads) + self.inner * self.hidden
        return projections + convolved * (self.kernel + 1) + 3 * self.heads + self.inner

    def state_bytes(self, tp: int) -> int:
        """Returns the state of one request in one layer, on each of ``tp`` cards."""
        groups = self.groups if self.groups % tp == 0 else tp * -(-self.groups // tp)
        convolved = (self.inner + 2 * groups * self.state) // tp
        wide = 4 if self.is_32_bit else _BYTES
        return convolved * (self.kernel - 1) * _BYTES + self.heads // tp * self.head * self.state * wide


class Delta:
    """Linear attention with the gated delta rule (Qwen3-Next)."""

    def __init__(self, config: Configuration) -> None:
        self.hidden = config.needed("hidden_size")
        self.keys = config.needed("linear_num_key_heads")
        self.values = config.needed("linear_num_value_heads")
        self.key_dim = config.needed("linear_key_head_dim")
        self.value_dim = config.needed("linear_value_head_dim")
        self.kernel = config.size("linear_conv_kernel_dim") or 4
        self.is_32_bit = str(config.get("mamba_ssm_dtype", "mamba_ssm_cache_dtype") or "") == "float32"

    @property
    def num_parameters(self) -> int:
        """Parameters of one layer."""
        keys, values = self.keys * self.key_dim, self.values * self.value_dim
        projections = self.hidden * (2 * keys + 2 * values + 2 * self.values) + values * self.hidden
        return projections + (2 * keys + values) * self.kernel + 2 * self.values + self.value_dim

    def state_bytes(self, tp: int) -> int:
        """Returns the state of one request in one layer, on each of ``tp`` cards."""
        convolved = (2 * self.keys * self.key_dim + self.values * self.value_dim) // tp
        wide = 4 if self.is_32_bit else _BYTES
        return convolved * (self.kernel - 1) * _BYTES + self.values // tp * self.key_dim * self.value_dim * wide


class ShortConvolution:
    """A gated convolution over a few tokens (LFM2)."""

    def __init__(self, config: Configuration) -> None:
        self.hidden = config.needed("hidden_size")
        self.kernel = config.needed("conv_L_cache")

    @property
    def num_parameters(self) -> int:
        """Parameters of one layer."""
        return 4 * self.hidden * self.hidden + self.hidden * self.kernel

    def state_bytes(self, tp: int) -> int:
        """Returns the state of one request in one layer, on each of ``tp`` cards."""
        return self.hidden // tp * (self.kernel - 1) * _BYTES


STATES: Mapping[str, Callable[[Configuration], StatefulLayer]] = {
    "mamba": Mamba1,
    "mamba2": Mamba2,
    "linear": Delta,
    "conv": ShortConvolution,
}
