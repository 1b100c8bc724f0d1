"""The first screen says if nobody knows how many tokens each expert gets on a simulated device."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from memdiag.analyzers.support.experts import experts_without_load
from memdiag.trace.recording import AssumedSizes, RecordingEnd
from memdiag.trace.schema import CATEGORIES

UNKNOWN_SIZES = AssumedSizes(count=3, fraction=1.0)


def trace_with(name, end, *, phantom=True):
    """A trace with one parameter and one tensor without a name."""
    tensors = SimpleNamespace(
        name=np.array([0, -1], "i4"),
        category=np.array([CATEGORIES.index("parameter"), CATEGORIES.index("parameter")], "i1"),
    )
    recorded = SimpleNamespace(ended=end)
    return SimpleNamespace(
        phantom=phantom, recorded=recorded, devices=[SimpleNamespace(tensors=tensors)], strings=[name]
    )


@pytest.mark.parametrize(
    ("name", "end", "module"),
    [
        ("layers.0.mlp.experts.3.up.weight", RecordingEnd(), "layers.0.mlp.experts"),
        ("experts.local_experts.3.linear_fc1.weight", RecordingEnd(), "experts"),
        ("layers.0.mlp.experts.3.up.weight", RecordingEnd(expert_load="balanced"), ""),
        ("layers.0.mlp.experts.gate_up_proj", RecordingEnd(), ""),
        ("layers.0.mlp.experts.gate_up_proj", RecordingEnd(sizes=UNKNOWN_SIZES), "layers.0.mlp.experts"),
        ("layers.0.mlp.up.weight", RecordingEnd(sizes=UNKNOWN_SIZES), ""),
    ],
)
def test_the_module_with_experts_is_named_if_their_load_is_unknown(name, end, module):
    assert experts_without_load(trace_with(name, end)) == module
    assert experts_without_load(trace_with(name, end, phantom=False)) == ""
