"""Infers the stage in which a program failed from the frames of a traceback.

The stages are ``load`` (weights), ``checkpoint`` (a file read straight onto the device), ``shard`` (parameters divided
among devices), ``optimizer`` (its state), ``update`` (temporaries of a step of the optimizer), ``evaluation``,
``gather`` (outputs of an evaluation put together), ``generation``; in reinforcement learning ``rollout``, ``log_prob``
and ``critic``; of an engine also ``profile`` (a trial of the largest batch) and ``capture`` (CUDA graphs).
"""

from __future__ import annotations

from memdiag.oom.lazily import Words

# The outermost frame wins. The last row is a step of the model itself.
_INNERMOST = (
    (
        "load",
        (
            "set_module_tensor_to_device",
            "_load_pretrained_model",
            "_load_state_dict_into",
            "load_checkpoint_in_model",
            "dispatch_model(",
            "loading checkpoint shards",
            "caching_allocator_warmup",
            "in convert",
            "_apply(convert)",
            "t.cuda(device)",
            "in _move_model_to_device",
            "in load_model",
            "in load_weights",
            "in initialize_model",
            "in _initialize_model",
        ),
    ),
    ("checkpoint", ("_cuda_deserialize", "restore_location", "persistent_load")),
    (
        "shard",
        (
            "in _auto_wrap",
            "in _recursive_wrap",
            "in _init_param_handle",
            "in _sync_module_params",
            "in _sync_params_and_buffers",
            "in flatten_tensors",
            "in _init_flat_param",
            "in _init_sharded_param",
            "in fully_shard",
            "in _configure_distributed_model",
            "in fsdp2_load_full_state_dict",
            "in _move_states_to_device",
        ),
    ),
    (
        "optimizer",
        (
            "in _init_group",
            'state["exp_avg',
            "state['exp_avg",
            'state["momentum_buffer',
            "state['momentum_buffer",
            "in initialize_optimizer_states",
            "in _configure_zero_optimizer",
            "get_megatron_optimizer(",
            "main_param = ",
            "_model_and_main_param_groups",
            "in init_state8bit",
            "in init_state",
            "in _setup_for_real_optimizer",
            "in _create_fp32_partitions",
        ),
    ),
    ("update", ("in _multi_tensor_", "torch._foreach_", "in _single_tensor_adam", "in _fused_adam")),
    (
        "gather",
        (
            "in nested_concat",
            "in torch_pad_and_concatenate",
            "in pad_across_processes",
            "in gather_for_metrics",
            "in _gather_and_numpify",
        ),
    ),
    ("", ("in forward", "in backward", ".backward(", "in _call_impl", "in _wrapped_call_impl")),
)
_EVALUATION = Words(
    r"\bin (?:[\w<>]{1,60}\.){0,3}(?:evaluat(?:e|ion)\w{0,40}|validat(?:e|ion)\w{0,40}|_evaluation_step"
    r"|eval(?:_\w{1,40})?|run_eval\w{0,20}"
    r"|prediction_(?:step|loop)|inference_on_dataset|test(?:_(?:step|epoch|loop|one_epoch|model))?)(?=[\s(,:]|$)",
    ("eval", "validat", "prediction_", "inference_on_dataset", "test"),
)
_GENERATION = Words(
    r"\bin (?:[\w<>]{1,60}\.){0,3}(?:generate\w{0,40}|_sample|_beam_search)(?=[\s(,:]|$)",
    ("generate", "_sample", "_beam_search"),
)
_REINFORCED = (
    ("log_prob", Words(r"\bin (?:\w{1,60}\.)?compute_(?:ref_)?log_prob", ("log_prob",))),
    ("critic", Words(r"\bin (?:\w{1,60}\.)?(?:update_critic|compute_values)\b", ("update_critic", "compute_values"))),
    (
        "rollout",
        Words(
            (
                r"\bin (?:\w{1,60}\.)?(?:wake_up|generate_sequences|rollout_mode)\b|inference_engine\.wake_up"
                r"|cumem_allocator"
            ),
            ("wake_up", "generate_sequences", "rollout_mode", "cumem_allocator"),
        ),
    ),
)
_JOINED = Words(r"\btorch\.(?:cat|stack|concat)\(|\.cat\(", ("torch.", ".cat("))
_LINES_INNER = 4  # the last lines of a traceback: the innermost frame, with its line of code

# An engine's outermost stage wins: a model step runs during graph capture, and in the trial of the largest batch.
_ENGINE = (
    (
        "capture",
        ("capture_model", "capture cuda graph", "graph_capture", "capture_begin", "cuda_graph_runner", "cudagraph"),
    ),
    ("profile", ("profile_run", "determine_num_available_blocks", "determine_available_memory", "_dummy_sampler_run")),
    ("load", ("load_model", "model_loader", "load_weights", "initialize_model", "from_pretrained")),
)
_TRACEBACK = "traceback (most recent call last)"
_ATTENTION = Words(
    r"attn|attention|softmax|q @ k|q, k\b|query|einsum|baddbmm|scores? =|sim = ",
    ("attn", "attention", "softmax", "q @ k", "q, k", "query", "einsum", "baddbmm", "score", "sim = "),
)
_LOGITS = Words(
    r"cross_entropy|lm_head|logits|log_softmax|\bloss_function\b|forcausallmloss",
    ("cross_entropy", "lm_head", "logits", "log_softmax", "loss_function", "forcausallmloss"),
)
_VAE = Words(r"\bvae\b|vae[./_]|first_stage|decode_first_stage|autoencoder", ("vae", "first_stage", "autoencoder"))


def frames_before(text: str) -> str:
    """Returns the frames of the last traceback in lines that end with a message; all of them if none begins there."""
    return text[text.rfind(_TRACEBACK) + 1 :]


def frames_after(text: str) -> str:
    """Returns the frames of a traceback printed after a message, or ""."""
    begin = text.find(_TRACEBACK)
    end = text.find(_TRACEBACK, begin + 1)
    return "" if begin < 0 else text[begin : end if end > 0 else len(text)]


def stage_of(frames: str) -> str | None:
    """Returns the stage, "" for a step of the model, or None if the frames do not show it."""
    place, stage = max((max(frames.rfind(word) for word in words), stage) for stage, words in _INNERMOST)
    if place >= 0 and stage not in {"", "update"}:
        return stage
    outer = next((name for name, words in _REINFORCED if words.search(frames)), "")
    if outer:
        return outer
    if _EVALUATION.search(frames):
        inner = "\n".join(frames.rstrip().split("\n")[-_LINES_INNER:])
        return "gather" if place < 0 and _JOINED.search(inner) else "evaluation"
    if _GENERATION.search(frames):
        return "generation"
    return stage if place >= 0 else None


def engine_stage(frames: str, around: str) -> str:
    """Returns the stage of an engine from its frames, else from the lines around a message; "" while it serves."""
    for text in (frames, around):
        stage = next((stage for stage, words in _ENGINE if any(word in text for word in words)), "")
        if stage:
            return stage
    return ""


def operation_of(frames: str) -> str:
    """Returns the operation of the innermost frames: "vae", "attention", "logits", or "" for anything else."""
    inner = "\n".join(frames.rstrip().split("\n")[-_LINES_INNER:])
    if _VAE.search(frames):
        return "vae"
    return "attention" if _ATTENTION.search(inner) else "logits" if _LOGITS.search(inner) else ""
