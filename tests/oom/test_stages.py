"""Program and stage of a failure are inferred from frames before the message, far above it, or after it."""

from __future__ import annotations

import time

import pytest

from memdiag.oom.read import read_text
from memdiag.oom.surroundings import marks_around
from tests.oom.single import single

HEAD = "Traceback (most recent call last):\n"
SIZES = (
    "CUDA out of memory. Tried to allocate 700.00 MiB. GPU 0 has a total capacity of 31.60 GiB of which 300.00 MiB is "
    "free. Of the allocated memory 30.50 GiB is allocated by PyTorch, and 90.00 MiB is reserved by PyTorch but "
    "unallocated."
)
MESSAGE = f"torch.OutOfMemoryError: {SIZES}"


def frame(file, function, code=""):
    return f'  File "/env/lib/{file}", line 7, in {function}\n' + (f"    {code}\n" if code else "")


FORWARD = frame("torch/nn/modules/module.py", "_call_impl", "return forward_call(*args)") + frame(
    "net.py", "forward", "return self.up(x)"
)
TRAINER = frame("transformers/trainer.py", "_inner_training_loop", "tr_loss_step = self.training_step(model, inputs)")


def first(frames):
    return single(f"{HEAD}{frames}{MESSAGE}").findings[0].fixes[0].change


@pytest.mark.parametrize(
    ("frames", "stage"),
    [
        (frame("transformers/trainer.py", "evaluation_loop") + FORWARD, "evaluation"),
        (frame("me/model.py", "validation_step", "return self(batch)") + FORWARD, "evaluation"),
        (frame("me/train.py", "test", "scores += bias"), "evaluation"),
        ("File /env/transformers/trainer.py:2113, in Trainer.evaluate(self, dataset)\n" + FORWARD, "evaluation"),
        (frame("me/val.py", "validate", "outputs = torch.cat(kept)"), "gather"),
        (
            frame("transformers/trainer.py", "evaluation_loop")
            + frame("transformers/trainer_pt_utils.py", "nested_concat"),
            "gather",
        ),
        (frame("transformers/trainer.py", "_maybe_log_save_evaluate") + frame("a.py", "save"), ""),
        (
            frame("torch/distributed/fsdp/wrap.py", "_recursive_wrap")
            + frame("torch/distributed/utils.py", "_sync_params_and_buffers"),
            "shard",
        ),
        (frame("torch/distributed/fsdp/_flat_param.py", "flatten_tensors", "return torch.cat(flat)"), "shard"),
        (frame("torch/distributed/fsdp/fully_sharded_data_parallel.py", "forward") + FORWARD, ""),
        (frame("torch/optim/adamw.py", "_multi_tensor_adamw", "root = torch._foreach_sqrt(squares)"), "update"),
        (frame("deepspeed/runtime/zero/stage_1_and_2.py", "initialize_optimizer_states"), "optimizer"),
        (
            frame(
                "megatron/training/training.py",
                "setup_model_and_optimizer",
                "optimizer = get_megatron_optimizer(config)",
            ),
            "optimizer",
        ),
        (frame("verl/workers/actor/dp_actor.py", "compute_log_prob") + FORWARD, "log_prob"),
        (frame("verl/workers/fsdp_workers.py", "generate_sequences") + frame("vllm/executor.py", "wake_up"), "rollout"),
        (TRAINER + frame("x/utils.py", "generate") + FORWARD, "generation"),
        (FORWARD, ""),
    ],
)
def test_the_stage_is_inferred_from_the_frames(frames, stage):
    marks = marks_around(MESSAGE, f"{HEAD}{frames}{MESSAGE}")
    assert [mark for mark in marks if mark.startswith("stage:")] == ([f"stage:{stage}"] if stage else [])


@pytest.mark.parametrize("number", [3, 120, 400])
def test_outer_frames_are_read_far_above_the_message(number):
    """Outer frames are found even in a long log, of which only windows of a few lines are read."""
    inner = "".join(frame(f"block{place}.py", "run", "x = self.block(x)") for place in range(min(number, 60)))
    quiet = "".join(f"step {place} loss 2.5 lr 0.1 time {place % 7} s\n" for place in range(number * 40))
    text = (
        f"{quiet}{HEAD}{TRAINER}{frame('transformers/trainer.py', 'evaluation_loop')}{inner}{FORWARD}{MESSAGE}\n{quiet}"
    )
    assert "per_device_eval_batch_size" in single(text).findings[0].fixes[0].change


def test_a_traceback_after_the_message_is_used_if_there_is_none_before():
    behind = f"{HEAD}{frame('vllm/worker/worker.py', 'load_model')}"
    assert "stage:load" in marks_around(f"{MESSAGE}\n{behind}", MESSAGE, f"{MESSAGE}\n{behind}")
    trainer = f"{HEAD}{frame('transformers/trainer.py', 'evaluation_loop')}"
    assert "stage:evaluation" in marks_around(f"{MESSAGE}\n{trainer}", MESSAGE, f"{MESSAGE}\n{trainer}")
    before = f"{HEAD}{FORWARD}{MESSAGE}"
    assert not any(mark.startswith("stage:") for mark in marks_around(before, before, f"{MESSAGE}\n{trainer}"))


@pytest.mark.parametrize(
    ("frames", "change"),
    [
        (TRAINER + FORWARD, "per_device_train_batch_size=1"),
        (TRAINER + frame("transformers/trainer.py", "prediction_step") + FORWARD, "per_device_eval_batch_size=1"),
        (
            TRAINER + frame("torch/optim/adamw.py", "_init_group", 'state["exp_avg"] = torch.zeros_like(p)'),
            'optim="adamw_bnb_8bit"',
        ),
        (TRAINER + frame("torch/optim/adamw.py", "_multi_tensor_adamw"), "adamw_torch_fused"),
        (frame("llamafactory/train/tuner.py", "run_exp") + TRAINER + FORWARD, "cutoff_len: 2048"),
        (frame("axolotl/train.py", "train") + TRAINER + FORWARD, "micro_batch_size: 1"),
        (frame("trl/trainer/sft_trainer.py", "train") + TRAINER + FORWARD, "max_length=1024"),
        (frame("trl/trainer/grpo_trainer.py", "compute_loss") + FORWARD, "max_completion_length"),
        (frame("verl/workers/actor/dp_actor.py", "update_policy", "loss.backward()"), "ppo_micro_batch_size_per_gpu=1"),
        (frame("verl/workers/actor/dp_actor.py", "compute_log_prob") + FORWARD, "log_prob_micro_batch_size_per_gpu=1"),
        (frame("openrlhf/trainer/ppo_actor.py", "training_step") + FORWARD, "--micro_train_batch_size 1"),
        (frame("megatron/training/training.py", "train_step") + FORWARD, "--recompute-granularity full"),
        (
            frame("megatron/core/optimizer.py", "setup", "optimizer = get_megatron_optimizer(config)"),
            "--use-distributed-optimizer",
        ),
        (frame("deepspeed/runtime/engine.py", "_configure_zero_optimizer"), '"offload_optimizer"'),
        (frame("torch/distributed/fsdp/wrap.py", "_recursive_wrap"), "auto_wrap_policy"),
        (
            frame("pytorch_lightning/loops/eval.py", "_evaluation_step") + frame("m.py", "validation_step") + FORWARD,
            "val_set, batch_size=1",
        ),
        (frame("ultralytics/engine/trainer.py", "_do_train") + FORWARD, "batch=-1"),
        (frame("sd-scripts/train_network.py", "train") + FORWARD, "--gradient_checkpointing"),
        (frame("me/main.py", "evaluate") + FORWARD, "torch.inference_mode()"),
        (frame("me/main.py", "validate", "kept = torch.cat(outputs)"), ".cpu()"),
        (frame("torch/optim/adamw.py", "_multi_tensor_adamw"), "fused=True"),
        (frame("lmdeploy/pytorch/engine.py", "_forward") + FORWARD, "--cache-max-entry-count"),
        (frame("vllm/v1/worker/gpu_model_runner.py", "profile_run") + FORWARD, "--max-num-seqs"),
        (frame("tensorrt_llm/executor/worker.py", "setup") + FORWARD, "--max_num_tokens"),
        (frame("ComfyUI/nodes.py", "decode", "images = vae.decode(samples)") + FORWARD, ""),
        (frame("net.py", "forward", "return self.up(x)"), ""),
    ],
)
def test_the_first_remedy_is_the_setting_of_the_program_at_that_stage(frames, change):
    assert change in first(frames)


def test_a_setting_of_the_program_replaces_the_equivalent_general_advice():
    titles = [fix.title for fix in single(f"{HEAD}{TRAINER}{FORWARD}{MESSAGE}").findings[0].fixes]
    assert titles[0].startswith("Use the smallest batch")
    assert not any(
        words in title for title in titles[1:] for words in ("smaller batch", "Recompute", "Without training")
    )


def test_a_hint_that_cannot_help_is_a_finding_without_fixes():
    hint = (
        " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to "
        "avoid fragmentation."
    )
    (finding,) = [finding for finding in single(f"{HEAD}{FORWARD}{MESSAGE}{hint}").findings if finding.code == "MD708"]
    assert finding.fixes == ()
    assert finding.title.startswith("expandable_segments, empty_cache(): can gain at most")


def test_tiled_decoding_is_the_first_remedy_for_the_vae_of_comfyui():
    frames = frame("ComfyUI/nodes.py", "decode", "images = vae.decode(samples)") + FORWARD
    assert "VAE Decode (Tiled)" in single(f"{HEAD}{frames}{MESSAGE}").findings[0].fixes[0].title


LARGE = SIZES.replace("700.00 MiB", "24.00 GiB").replace("30.50 GiB", "6.50 GiB").replace("300.00 MiB", "22.00 GiB")


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("weights = torch.softmax(scores, dim=-1)", "scaled_dot_product_attention"),
        ("attn_weights = torch.matmul(query, key.transpose(2, 3))", "scaled_dot_product_attention"),
        ("loss = F.cross_entropy(logits, labels)", "Liger"),
        ("table = torch.zeros(rows, columns)", ""),
    ],
)
def test_attention_is_advised_on_only_if_it_made_the_request(code, change):
    text = f"{HEAD}{frame('me/model.py', 'forward', code)}torch.OutOfMemoryError: {LARGE}"
    fixes = single(text).findings[0].fixes
    assert change in fixes[0].change
    assert any("scaled_dot" in fix.change for fix in fixes) == ("scaled_dot" in change)


def test_a_driver_error_without_numbers_gets_the_settings_of_the_program():
    frames = frame("verl/workers/fsdp_workers.py", "generate_sequences")
    text = f"{HEAD}{frames}RuntimeError: CUDA Error: out of memory at /b/cumem_allocator.cpp:70"
    assert "actor_rollout_ref.rollout.gpu_memory_utilization" in single(text).findings[0].fixes[0].change


@pytest.mark.parametrize(
    "kernel", ["aclnnMoeDistributeDispatchV2", "aclnnAllGatherMatmul", "HcclAllocComResourceByTiling"]
)
def test_hccl_buffsize_is_not_advised_for_kernels_that_communicate(kernel):
    text = (
        f"NPU function error: call {kernel} failed, error code is 207001\n"
        "[ERROR] 2025-03-04-05:06:07 (PID:77, Device:3, RankID:-1) ERR00100 PTA call acl api failed\n"
        "EL0004: [PID: 77] 2025-03-04-05:06:07.008.009 Failed to allocate memory.\n"
        "        Failed to allocate resource[DeviceMemory] with info [size:1073741824]. Reason: Memory resources are "
        "exhausted.\n"
        "        Nnopbase fails to invoke the hccl module."
    )
    changes = [
        fix.change for message in read_text(text).messages for finding in message.findings for fix in finding.fixes
    ]
    assert changes
    assert not any("HCCL_BUFFSIZE" in change for change in changes)


def test_thousands_of_ranks_are_read_in_linear_time():
    text = "".join(f"[rank{rank}]: {MESSAGE}\n" for rank in range(1500))
    begin = time.process_time()
    assert len(read_text(text).messages) == 1500
    assert time.process_time() - begin < 30
