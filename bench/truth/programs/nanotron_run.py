"""Trains Llama 1B with nanotron's own trainer, in the configuration of huggingface/bench_cluster, with made-up tokens.

    python nanotron_run.py CHECKOUT --dp N --tp N --pp N --micro-batch N [--steps N]

4 million tokens per step, as published: 1,024 sequences of 4,096 tokens. nanotron prints its counters before each step.
"""

import argparse
import os
import sys
from pathlib import Path

import torch

LENGTH, SEQUENCES = 4096, 1024


def main() -> None:
    """Builds trainer and data set, and trains."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout")
    for name in ("dp", "tp", "pp", "micro-batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--steps", type=int, default=2)
    given = parser.parse_args()
    sys.path[:0] = [given.checkout, str(Path(given.checkout) / "src")]

    import datasets
    import run_train
    import triton.common.build
    from nanotron.parallel.pipeline_parallel.p2p import P2P
    from nanotron.trainer import DistributedTrainer

    # Triton 2.1 looks for libcuda.so in the folders of the system only; later ones read this variable themselves.
    triton.common.build.libcuda_dirs = lambda: [os.environ["TRITON_LIBCUDA_PATH"]]
    _receive_what_was_sent(P2P)
    samples = datasets.Dataset.from_dict({"input_ids": [[0] * (LENGTH + 1)]})
    run_train.get_datasets = lambda **_: {"train": None}
    run_train.clm_process = lambda **_: samples.select([0] * (given.steps * SEQUENCES))
    run_train.AutoTokenizer = _Tokenizer
    path = Path("config.yaml")
    path.write_text(_config(given))
    trainer = DistributedTrainer(str(path))
    trainer.train(run_train.get_dataloader(trainer))


class _Tokenizer:
    """Stands for the tokenizer of GPT-2, of which the run reads the size of its vocabulary only."""

    vocab_size = 50257
    eos_token = pad_token = ""
    padding_side = "left"

    @classmethod
    def from_pretrained(cls, _name: str) -> "_Tokenizer":
        """Returns a tokenizer, whatever its name."""
        return cls()


def _receive_what_was_sent(p2p: type) -> None:
    """Makes the pipeline expect gradients of the shapes of the activations that this rank sent.

    Ranks announce the shape of a tensor in a message, through buffers that are allocated once. Where a rank runs alone,
    nobody reads its messages, and none arrive.
    """
    sent: dict[int, object] = {}
    metadata = sys.modules[p2p.__module__].P2PTensorMetaData

    # nanotron's names
    def send_meta(_self: object, tensor: torch.Tensor, to_rank: int, tag: int) -> None:  # noqa: ARG001
        if tensor.requires_grad:
            sent[to_rank] = metadata(
                shape=tensor.shape,
                stride=tensor.stride(),
                is_contiguous=True,
                untyped_storage_size=tensor.numel() * tensor.element_size(),
                storage_offset=0,
                dtype=tensor.dtype,
                requires_grad=False,
            )

    p2p._send_meta = send_meta  # noqa: SLF001 - the message of nanotron
    p2p._recv_meta = lambda _self, from_rank, tag: sent[from_rank]  # noqa: ARG005, SLF001 - names of nanotron


def _config(given: argparse.Namespace) -> str:
    """Returns the configuration, as nanotron reads it."""
    return f"""
general: {{project: bench_cluster, seed: 42}}
model:
  ddp_bucket_cap_mb: 25
  dtype: bfloat16
  init_method: {{std: 0.025}}
  make_vocab_size_divisible_by: 1
  model_config:
    {{is_llama_config: true, hidden_size: 2048, intermediate_size: 4096, num_hidden_layers: 24, num_attention_heads: 32,
    num_key_value_heads: 32, max_position_embeddings: {LENGTH}, vocab_size: {_Tokenizer.vocab_size}, hidden_act: silu,
    initializer_range: 0.02, rms_norm_eps: 1.0e-05, rope_scaling: null, rope_theta: 10000.0, tie_word_embeddings: true,
    bos_token_id: 1, eos_token_id: 2, pad_token_id: null, pretraining_tp: 1, use_cache: true}}
optimizer:
  accumulate_grad_in_fp32: true
  clip_grad: 1.0
  learning_rate_scheduler:
    {{learning_rate: 0.0001, lr_decay_style: linear, lr_warmup_style: linear, lr_warmup_steps: 1, \
min_decay_lr: 1.0e-05}}
  optimizer_factory: {{name: adamW, adam_beta1: 0.9, adam_beta2: 0.95, adam_eps: 1.0e-08, torch_adam_is_fused: true}}
  weight_decay: 0.01
  zero_stage: 1
parallelism:
  {{dp: {given.dp}, tp: {given.tp}, pp: {given.pp}, expert_parallel_size: 1, pp_engine: 1f1b, tp_mode: REDUCE_SCATTER,
  tp_linear_async_communication: false, recompute_layer: false}}
tokenizer: {{tokenizer_name_or_path: gpt2, tokenizer_max_length: null, tokenizer_revision: null}}
data_stages:
  - name: Training
    start_training_step: 1
    data:
      dataset:
        {{hf_dataset_or_datasets: made-up, hf_dataset_splits: train, hf_dataset_config_name: null, \
text_column_name: text,
        dataset_overwrite_cache: false, dataset_processing_num_proc_per_process: 1}}
      num_loading_workers: 0
      seed: 42
tokens:
  {{sequence_length: {LENGTH}, train_steps: {given.steps}, micro_batch_size: {given.micro_batch}, \
val_check_interval: -1,
  batch_accumulation_per_replica: {SEQUENCES // (given.dp * given.micro_batch)}, limit_test_batches: 0, \
limit_val_batches: 0}}
logging: {{iteration_step_info_interval: 1, log_level: info, log_level_replica: info}}
checkpoints: {{checkpoint_interval: 100000, checkpoints_path: /dev/null, resume_checkpoint_path: null}}
profiler: null
lighteval: null
"""


if __name__ == "__main__":
    main()
