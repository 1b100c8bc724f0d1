"""vllm-ascend's start-up log: vLLM's lines, with NPU graphs and some other forms (worker.py of vllm_ascend)."""

from __future__ import annotations

from memdiag.serving.engines import vllm
from memdiag.serving.rules import rule

NAME, PROGRAM = "vllm-ascend", "vllm-ascend"
ANCHORS = (*vllm.ANCHORS, "Available memory:", "total memory:", "vllm_ascend", "vllm-ascend")
SIGNS = (
    "vllm_ascend",
    "vllm-ascend",
    "NPU graph memory",
    "platform ascend",
    "NPUModelRunner",
    "npu_model_runner",
    "model_runner_v1.py:",
)
START = vllm.START
KEPT = vllm.KEPT
RULES = (
    *vllm.RULES,
    rule(r"Available memory: <kv:bytes>, total memory: <total:bytes>"),
)
card = vllm.card
facts = vllm.facts
fixes = vllm.fixes
