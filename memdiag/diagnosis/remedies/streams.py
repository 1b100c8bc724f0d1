"""Memory that waits for another stream, and memory that only one stream can use."""

from __future__ import annotations

from memdiag.diagnosis.remedies.model import Plain, of_backends
from memdiag.results.lazy_fix import LazyFix

# torch_npu: 0 never reuses memory early; 1 (the default) and 3 reuse it after a wait for the stream.
REUSE = Plain(LazyFix("remedies.reuse", "env", "export MULTI_STREAM_MEMORY_REUSE=3"), of_backends("npu"))
REFERENCES = Plain(
    LazyFix("remedies.references", "env", "export TORCH_NCCL_AVOID_RECORD_STREAMS=1"), of_backends("cuda")
)
LIMITED_GATHERS = Plain(LazyFix("remedies.gathers", "code", ""), of_backends("cuda"))
WAIT = Plain(LazyFix("remedies.wait", "code", when="remedies.every"))
LESS_WAITING = Plain(LazyFix("remedies.less-waiting", "code", when="remedies.every"))
ONE_STREAM = Plain(LazyFix("remedies.one-stream", "code"))
