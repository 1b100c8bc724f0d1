"""The first screen says if nobody knows how many tokens each expert gets on a simulated device."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from memdiag.analyzers.support.experts import experts_without_load
from memdiag.trace.recording import AssumedSizes, RecordingEnd
from memdiag.trace.schema import CATEGORIES, PHASES

UNKNOWN_SIZES = AssumedSizes(count=3, fraction=1.0)


def trace_with(name, end, *, phantom=True):
    """A trace with one parameter and one tensor without a name."""
    tensors = SimpleNamespace(
        name=np.array([0, -1], "i4"),
        category=np.array([CATEGORIES.index("parameter"), CATEGORIES.index("parameter")], "i1"),
        phase_alloc=np.array([PHASES.index("initialisation"), PHASES.index("initialisation")], "i1"),
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


@pytest.mark.parametrize(("sizes", "module"), [(None, ""), (UNKNOWN_SIZES, "experts")])
def test_experts_that_allocate_without_sizes_from_values_get_tokens_in_another_way(sizes, module):
    trace = trace_with("experts.3.up.weight", RecordingEnd(sizes=sizes))
    trace.strings.append("experts.3.up")
    tensors = trace.devices[0].tensors
    tensors.name[1] = 1
    tensors.category[1], tensors.phase_alloc[1] = CATEGORIES.index("activation"), PHASES.index("forward")
    assert experts_without_load(trace) == module
