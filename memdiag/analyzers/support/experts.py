"""Mixtures of experts in recordings of simulated devices."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from memdiag.trace.model import Trace
from memdiag.trace.schema import CATEGORIES, PHASES
from memdiag.trace.table import Array

_PARAMETER = CATEGORIES.index("parameter")
_FORWARD = PHASES.index("forward")
# "layers.0.mlp.experts" of "layers.0.mlp.experts.3.up.weight", also with a module between, as in Megatron's
# "experts.local_experts.3.linear_fc1.weight"
_SEPARATE = re.compile(r"(?P<module>(?:\S+\.)?experts)\.(?:\w+\.)?\d+\.")
# all experts in one parameter, such as "layers.0.mlp.experts.gate_up_proj"
_TOGETHER = re.compile(r"(?P<module>(?:\S+\.)?experts)\.\w+$")


def experts_without_load(trace: Trace) -> str:
    """Returns the module with experts if nothing says how many tokens each of them gets, else "".

    On a simulated device, a program that gives each expert its own tokens reads these numbers as synthetic values. So
    experts may get no token, or each of them gets all tokens. If all experts are in one parameter, the sizes of buffers
    may depend on the number of all tokens only. Such a model counts only if some size depended on values. If none did,
    experts that allocated memory got their tokens in another way: a dense mixture passes all tokens to each expert,
    and others have a fixed capacity.
    """
    ended = trace.recorded.ended if trace.recorded else None
    if not trace.phantom or ended is None or ended.expert_load:
        return ""
    patterns = (_SEPARATE, _TOGETHER) if ended.sizes else (_SEPARATE,)
    for device in trace.devices:
        tensors = device.tensors
        first = _module_with(trace, tensors.name[tensors.category == _PARAMETER], patterns)
        ran = not ended.sizes and _module_with(trace, tensors.name[tensors.phase_alloc == _FORWARD], patterns)
        if first and not ran:
            return first
    return ""


def _module_with(trace: Trace, numbers: Array, patterns: Iterable[re.Pattern[str]]) -> str:
    """Returns the module with experts that the first matching name contains, or ""."""
    names = (trace.strings[number] for number in np.unique(numbers[numbers >= 0]))
    found = (pattern.match(name) for name in names for pattern in patterns)
    return next((match["module"] for match in found if match), "")
