"""The lines around a message reveal the program, its stage, the operating system and the settings."""

from __future__ import annotations

import pytest

from memdiag.oom.surroundings import marks_around
from memdiag.text import phrase, speaking

MESSAGE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. "
HINT = (
    "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation."
)


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ('  File "/env/site-packages/vllm/v1/worker/worker.py", line 3, in step', "vllm"),
        ("(VllmWorkerProcess pid=7) ERROR 01-01 10:00:00 worker.py:3] it failed", "vllm"),
        ("(EngineCore_DP0 pid=7) Traceback (most recent call last):", "vllm"),
        ('  File "/sgl/python/sglang/srt/managers/scheduler.py", line 3, in run', "sglang"),
        ("1. set --mem-fraction-static to a smaller value", "sglang"),
        ('  File "/env/site-packages/transformers/generation/utils.py", line 3, in generate', "transformers"),
        ('  File "/env/site-packages/diffusers/models/unet.py", line 3, in forward', "diffusers"),
        (r'  File "D:\ComfyUI\execution.py", line 3, in execute', "comfyui"),
        ('  File "/home/me/stable-diffusion-webui/modules/processing.py", line 3, in run', "webui"),
    ],
)
def test_inference_engines_are_recognised(line, engine):
    assert f"engine:{engine}" in marks_around(f"{line}\n{MESSAGE}")


@pytest.mark.parametrize(
    "lines",
    [
        "",
        '  File "/home/me/train.py", line 3, in main\n    loss.backward()',
        (
            '  File "/env/site-packages/vllm/worker.py", line 3, in run\n  File "/rl/actor.py", line 9, in '
            "update_policy\n    loss.backward()"
        ),
        '  File "/env/site-packages/diffusers/unet.py", line 3, in forward\n  File "/me/train.py", line 3, in main',
    ],
)
def test_training_is_not_recognised_as_an_engine(lines):
    assert not any(mark.startswith("engine:") for mark in marks_around(f"{lines}\n{MESSAGE}"))


@pytest.mark.parametrize(
    ("function", "stage"), [("load_model", "load"), ("capture_model", "capture"), ("execute_model", "")]
)
def test_the_stage_of_an_engine_is_recognised(function, stage):
    marks = marks_around(f'  File "/x/vllm/v1/worker/runner.py", line 3, in {function}\n{MESSAGE}')
    assert [mark for mark in marks if mark.startswith("stage:")] == ([f"stage:{stage}"] if stage else [])


@pytest.mark.parametrize(
    ("line", "is_windows"),
    [
        (r'  File "C:\Users\me\train.py", line 3', True),
        (r'"text": "File \"C:\\Users\\me\\train.py\""', True),
        (r"[enforce fail at C:\cb\pytorch\c10\core\impl\alloc_cpu.cpp:3]", True),
        (r'  File "D:\projects\x\a.py", line 3', True),
        ('  File "/home/me/train.py", line 3', False),
        (r"[rank0]:\nTraceback (most recent call last):\n  File", False),
        (r"a regular expression: \d+:\s", False),
    ],
)
def test_windows_is_recognised_by_its_paths(line, is_windows):
    assert ("os:windows" in marks_around(f"{line}\n{MESSAGE}")) == is_windows


@pytest.mark.parametrize(
    "line",
    [
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "export PYTORCH_ALLOC_CONF='max_split_size_mb:128,expandable_segments:True'",
        'os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"',
        "  PYTORCH_NPU_ALLOC_CONF: expandable_segments:True",
    ],
)
def test_printed_settings_are_recognised(line):
    assert "set:expandable_segments" in marks_around(f"{line}\n{MESSAGE}{HINT}")


@pytest.mark.parametrize(
    "text", [HINT, HINT.replace("setting ", "setting\n"), "Consider PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"]
)
def test_suggested_settings_do_not_count_as_set(text):
    assert not any(mark.startswith("set:") for mark in marks_around(MESSAGE + text))


@pytest.mark.parametrize(
    "line",
    [
        "try long_lc pool fail, size:41943040",
        "SEG info: dev 0, size 2097152, allocated 1349120, type smalllong",
        "largedefault-allocated cnt 16 size 810549248",
        '  File "/x/mindspeed/core/memory/memory_fragmentation/memory_recorder.py", line 43, in rec_wrap',
    ],
)
def test_the_pools_of_mindspeed_are_recognised(line):
    assert "set:lifetime_pools" in marks_around(f"{line}\n{MESSAGE}")
    assert "set:lifetime_pools" not in marks_around(MESSAGE)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_suggestions_of_memdiag_in_the_log_do_not_count_as_set(language):
    fix = "Enable expandable segments, so that adjacent free blocks can merge (MD201)"
    with speaking(language):
        label = str(phrase("verdict.label.first"))
    report = (
        f"memdiag: recorded 1 process\n  {label}   {fix}\n             export "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"
    )
    assert "set:expandable_segments" not in marks_around(MESSAGE + report)


@pytest.mark.parametrize("piece", ["c:\\", "alloc_conf=", "vllm/", "pytorch_cuda_alloc_conf='", "a" * 50])
def test_long_lines_are_read_to_the_end(piece):
    """Long lines are read in linear time; with quadratic time, this test would not finish."""
    text = piece * (2_000_000 // len(piece)) + "\nPYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" + MESSAGE
    assert "set:expandable_segments" in marks_around(text)


FRAMES = {
    "load": (
        '  File "/x/accelerate/utils/modeling.py", line 3, in set_module_tensor_to_device\n    new_value = '
        "value.to(device)"
    ),
    "checkpoint": '  File "/x/torch/serialization.py", line 3, in _cuda_deserialize\n    return storage_type(size)',
    (
        "optimizer"
    ): '  File "/x/torch/optim/adamw.py", line 3, in _init_group\n    state["exp_avg_sq"] = torch.zeros_like(p)',
}


@pytest.mark.parametrize("stage", FRAMES)
def test_the_stage_is_inferred_from_the_innermost_frames(stage):
    outer = 'Traceback (most recent call last):\n  File "train.py", line 9, in main\n    trainer.train()\n'
    assert f"stage:{stage}" in marks_around(MESSAGE, f"{outer}{FRAMES[stage]}\n{MESSAGE}")


def test_a_forward_pass_is_not_recognised_as_loading():
    step = '  File "/x/torch/nn/modules/module.py", line 3, in _call_impl\n    return forward_call(*args)\n'
    earlier = (
        "Traceback (most recent call last):\n" + FRAMES["load"] + "\nRetrying\nTraceback (most recent call last):\n"
    )
    for before in ("", step, FRAMES["load"] + "\n" + step, earlier + '  File "a.py", line 1, in f\n'):
        assert not any(mark.startswith("stage:") for mark in marks_around(MESSAGE, before + MESSAGE))
