"""``memdiag serving`` and ``memdiag oom`` name the same memory fraction, with which the start succeeds at once."""

from __future__ import annotations

import pytest

from memdiag.diagnosis.memory_fraction import lower_utilization, utilization_in
from memdiag.oom.inputs import OomInput
from memdiag.oom.read import read_text
from memdiag.runs.explaining import explain
from memdiag.serving.read import read_log
from memdiag.units import GIB, MIB

VLLM = """vllm serve toy --gpu-memory-utilization {now}
INFO 07-01 09:00:00 [gpu_model_runner.py:5515] Model loading took 15.00 GiB memory and 4.0 seconds
INFO 07-01 09:00:02 [gpu_worker.py:578] Available KV cache memory: {kv} GiB
INFO 07-01 09:00:03 [gpu_model_runner.py:6100] Capturing CUDA graphs
"""
FAILED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {requested}. GPU 0 has a total capacity of "
    "22.36 GiB of which {free} is free. Including non-PyTorch memory, this process has 22.00 GiB memory in use.\n"
)
SGLANG = """[2026-07-01 09:00:00] server_args=ServerArgs(model_path='toy', mem_fraction_static=0.9)
[2026-07-01 09:00:01] Load weight begin. avail mem=22.00 GB
[2026-07-01 09:00:02] Load weight end. type=Toy, dtype=torch.bfloat16, avail mem=12.00 GB, mem usage=10.00 GB.
[2026-07-01 09:00:03] KV Cache is allocated. #tokens: 1024, K size: 4.90 GB, V size: 4.90 GB
[2026-07-01 09:00:03] Memory pool end. avail mem=2.20 GB
[2026-07-01 09:00:04] Capture cuda graph begin. This can take up to several minutes. avail mem=2.10 GB
"""


def both(tmp_path, text, flag):
    """Returns the value of a flag in the report of ``memdiag serving``, and in that of ``memdiag oom``."""
    path = tmp_path / "server.log"
    path.write_text(text)
    first = [fix.change for fix in read_log(str(path)).failure.fixes]
    (message,) = explain([OomInput(str(path), path=path)]).messages
    second = [fix.change for finding in message.findings for fix in finding.fixes]
    return tuple(next((change for change in changes if change.startswith(flag)), "") for changes in (first, second))


@pytest.mark.parametrize(
    ("now", "kv", "requested", "free", "runs"),
    [
        (0.98, "2.97", "136.00 MiB", "120.88 MiB", 0.97),  # the log of vllm#57475
        (0.98, "6.64", "6.64 GiB", "6.62 GiB", 0.96),  # the simulated starts of docs/serving.md
        (0.97, "6.40", "56.00 MiB", "48.64 MiB", 0.96),
        (0.98, "6.70", "16.00 MiB", "12.64 MiB", 0.97),
    ],
)
def test_both_commands_name_the_fraction_with_which_the_start_succeeded(tmp_path, now, kv, requested, free, runs):
    text = VLLM.format(now=now, kv=kv) + FAILED.format(requested=requested, free=free)
    flag = f"--gpu-memory-utilization {runs}"
    assert both(tmp_path, text, "--gpu-memory-utilization") == (flag, flag)


def test_a_setting_far_from_the_message_counts_for_both(tmp_path):
    between = "INFO 07-01 09:00:03 [gpu_model_runner.py:6100] Capturing\n" * 2000
    text = VLLM.format(now=0.93, kv="2.97") + between + FAILED.format(requested="136.00 MiB", free="100.00 MiB")
    first, second = both(tmp_path, text, "--gpu-memory-utilization")
    assert first == second == "--gpu-memory-utilization 0.92"


def test_both_commands_name_the_same_fraction_of_sglang(tmp_path):
    text = SGLANG + FAILED.format(requested="500.00 MiB", free="100.00 MiB")
    first, second = both(tmp_path, text, "--mem-fraction-static")
    assert first == second == "--mem-fraction-static 0.87"


def test_a_message_alone_gets_a_value_from_its_sizes():
    text = "(EngineCore pid=7) vllm/v1/worker/gpu_model_runner.py\n" + FAILED.format(
        requested="136.00 MiB", free="100.00 MiB"
    )
    (message,) = read_text(text).messages
    changes = [fix.change for finding in message.findings for fix in finding.fixes]
    assert "--gpu-memory-utilization 0.89" in changes  # 0.9, the default, less 36 and 150 MiB


def test_without_sizes_the_fraction_falls_by_a_tenth():
    assert lower_utilization(None, None, None) == "0.80"
    assert lower_utilization(0.98, 24 * GIB, None) == "0.88"


def test_the_workspace_of_attention_follows_the_kv_cache():
    assert lower_utilization(0.98, 24 * GIB, 10 * MIB, is_cache=True) < lower_utilization(0.98, 24 * GIB, 10 * MIB)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("vllm serve x --gpu-memory-utilization 0.95", 0.95),
        ("'gpu_memory_utilization': 0.85, 'port': 1", 0.85),
        ("LLM(model=x, gpu_memory_utilization=.5)", 0.5),
        ("is equivalent to --gpu-memory-utilization=0.8048 without", None),
        ("try a lower --gpu-memory-utilization", None),
    ],
)
def test_the_setting_of_a_text_is_read(text, value):
    assert utilization_in(text) == value
