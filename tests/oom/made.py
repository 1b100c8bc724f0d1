"""Generated messages in the form that dialects return: hypothesis strategies, and a helper with sizes in GiB."""

from __future__ import annotations

from hypothesis import strategies as st

from memdiag.oom.model import Found
from memdiag.units import GIB, MIB

NAMES = (
    "requested",
    "total",
    "free",
    "allocated",
    "reserved",
    "unallocated",
    "cached",
    "active",
    "private_pool",
    "process",
    "limit",
    "other_alloc",
    "static",
    "program",
)
BACKENDS = ("cuda", "hip", "npu", "xpu", "mps", "hpu", "tpu", "metal", "cpu")

_SIZES = st.one_of(st.sampled_from([0, 1, 2 * MIB, 20 * MIB, GIB, 80 * GIB]), st.integers(0, 1 << 60))
_PROCESSES = st.lists(st.tuples(st.integers(0, 1 << 22), _SIZES).map(list), max_size=4)
_MORE = (
    st.dictionaries(st.sampled_from(["other_processes", "processes"]), _PROCESSES),
    st.dictionaries(st.sampled_from(["device_index", "rank", "pid"]), st.integers(0, 100)),
)
# _ANY has the fields of a damaged message, _WHOLE those of a complete one, with sizes that fit a device.
_ANY = st.dictionaries(st.sampled_from([f"{name}_bytes" for name in NAMES]), _SIZES)
_MIBS = st.integers(0, 120_000).map(lambda size: size * MIB)
_WHOLE = st.fixed_dictionaries(
    {f"{name}_bytes": _MIBS for name in ("requested", "total", "free", "allocated")},
    optional={
        f"{name}_bytes": _MIBS for name in ("unallocated", "reserved", "private_pool", "process", "limit", "active")
    },
)
FIELDS = st.tuples(st.one_of(_ANY, _WHOLE), *_MORE).map(lambda parts: {**parts[0], **parts[1], **parts[2]})
MARKS = st.frozensets(
    st.sampled_from(
        [
            "hint:max_split_size_mb",
            "hint:expandable_segments",
            "conf-name:PYTORCH_ALLOC_CONF",
            "conf-name:PYTORCH_NPU_ALLOC_CONF",
            "generation:0.4",
            "generation:1.4",
            "generation:1.10",
            "generation:2.1",
            "generation:npu-1.8",
            "generation:npu-1.11",
            "generation:2.9",
            "generation:npu-26.0",
        ]
    ),
    max_size=3,
)
FOUND = st.builds(
    Found,
    st.just(0),
    st.just(1),
    st.sampled_from(["torch_cuda_21", "torch_npu", "torch_cuda_mallocasync", "jax_xla"]),
    st.sampled_from(["pytorch", "torch_npu", "vllm", "jax"]),
    st.sampled_from(BACKENDS),
    FIELDS,
    marks=MARKS,
)


def found(backend="cuda", framework=None, dialect="", marks=(), **gib):
    """Returns a message with sizes given in GiB; lists and texts are used unchanged."""
    fields = {
        f"{name}_bytes" if isinstance(size, int | float) else name: round(size * GIB)
        if isinstance(size, int | float)
        else size
        for name, size in gib.items()
    }
    framework = framework or ("torch_npu" if backend == "npu" else "pytorch")
    return Found(0, 1, dialect or "torch_cuda_21", framework, backend, fields, marks=frozenset(marks))
