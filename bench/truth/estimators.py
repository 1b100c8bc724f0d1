"""Compares other estimators with memdiag and with published peaks of real cards, and writes reports/estimators.md.

    python bench/truth/estimators.py --python PYTHON --work FOLDER

PYTHON has torch, transformers, accelerate and deepspeed. FOLDER receives the repositories of FakeGPU and Megatron-LM at
their commits (a folder OWNER+NAME in FOLDER/checkouts is taken as it is) and folders with model configurations. Every
estimator is the original program. The rows, the published peaks and memdiag's figures are those of
reports/phantom-truth.json (bench/truth/run.py).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from models import MODELS, make_model
from run import _checkout

HERE = Path(__file__).parent
REPORTS = HERE.parents[1] / "reports"
FAKEGPU = "FanBB2333/FakeGPU@7d5cf83"
MEGATRON = "NVIDIA/Megatron-LM@d98e8a64ddf34856e74b24714e3bedb2f5a39553"
UNITS = {"B": 1, "GB": 10**9, "MiB": 1 << 20, "GiB": 1 << 30}
LLAMA_8B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
# The model and the job of the nanotron rows, in the words of Megatron-LM's arguments. nanotron keeps what Megatron-LM's
# selective recomputation keeps, since it uses flash attention.
NANOTRON = {
    "num_layers": 24,
    "hidden_size": 2048,
    "ffn_hidden_size": 4096,
    "num_attention_heads": 32,
    "kv_channels": 64,
    "seq_length": 4096,
    "padded_vocab_size": 50257,
    "swiglu": True,
    "group_query_attention": False,
    "normalization": "RMSNorm",
    "sequence_parallel": True,
    "recompute_granularity": "selective",
    "use_distributed_optimizer": True,
    "expert_model_parallel_size": 1,
    "expert_tensor_parallel_size": 1,
}
SEQUENCES = 1024  # of a step of the nanotron rows
_MODEL = """
import json, sys, torch
from transformers import AutoConfig, AutoModelForCausalLM
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(sys.argv[1]))
"""
_DEEPSPEED = (
    _MODEL
    + """
from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs
ranks = int(sys.argv[2])
job = dict(num_gpus_per_node=min(ranks, 8), num_nodes=-(-ranks // 8), cpu_offload=False)
# DeepSpeed counts weights of a live model by address, which weights on the meta device lack.
total = sum(each.numel() for each in model.parameters())
largest = max(sum(each.numel() for each in part.parameters(recurse=False)) for part in model.modules())
stage3 = estimate_zero3_model_states_mem_needs(total, largest, cpu_offload_params=False, zero_init=True, **job)
stage2 = estimate_zero2_model_states_mem_needs(total, **job)
print("FOUND", (stage3 if ranks > 1 else stage2)[1])
"""
)
_ACCELERATE = (
    _MODEL
    + """
from accelerate.commands.estimate import estimate_training_usage
from accelerate.utils import calculate_maximum_sizes
total, _ = calculate_maximum_sizes(model.float())
print("FOUND", max(estimate_training_usage(total, "float16").values()) if sys.argv[2] == "train" else total // 2)
"""
)
_MEGATRON = """
import collections, importlib.util, json, sys, types
package, utils = types.ModuleType("training"), types.ModuleType("training.utils")
package.__path__ = []
utils.is_hybrid_model, utils.print_rank_0 = lambda args: False, lambda text: None
sys.modules.update({"training": package, "training.utils": utils})
spec = importlib.util.spec_from_file_location("training.theoretical_memory_usage", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
job = json.loads(sys.argv[2])
args = collections.defaultdict(lambda: None, job)
args = type("Arguments", (), {"__getattr__": lambda self, name: job.get(name)})()
print("FOUND", sum(module.report_theoretical_memory(args, job["microbatches"])[:2]) * 2**20)
"""


@dataclass(frozen=True)
class Estimate:
    """One row of the comparison; bytes.

    Attributes:
        family, row: The published measurement.
        estimator: The other program.
        published, ours, theirs: Peak of the real card, of memdiag, and of the other program.
    """

    family: str
    row: str
    estimator: str
    published: float
    ours: int
    theirs: float


class Estimators:
    """Runs the other programs."""

    def __init__(self, python: str, work: Path) -> None:
        self.python, self.models = python, work / "models"
        checkouts = work / "checkouts"
        checkouts.mkdir(parents=True, exist_ok=True)
        self.fakegpu, self.megatron_lm = (_checkout(name, checkouts) for name in (FAKEGPU, MEGATRON))
        MODELS["llama-3.1-8b"] = LLAMA_8B
        self._known: dict[tuple[str, ...], float] = {}

    def deepspeed(self, model: str, ranks: int) -> float:
        """Model states with ZeRO-3, or ZeRO-2 on one rank."""
        return self._found(_DEEPSPEED, str(self._folder(model)), str(ranks))

    def accelerate(self, model: str, kind: str) -> float:
        """Training with Adam and mixed precision, or weights of 16 bits alone."""
        return self._found(_ACCELERATE, str(self._folder(model)), kind)

    def fakegpu_llm(self, model: str, prompt: int, new: int) -> float:
        """Inference."""
        make_model(model, self.models, self.python)
        out = self.models / "fakegpu.json"
        words = ["--batch-size", "1", "--prompt-tokens", str(prompt), "--generated-tokens", str(new)]
        words += ["--dtype", "bfloat16", "--attention-implementation", "sdpa", "--json", str(out)]
        command = [self.python, "-m", "fakegpu", "estimate-llm", "--model-dir", str(self.models / model), *words]
        subprocess.run(command, check=True, cwd=self.fakegpu, stdout=subprocess.DEVNULL)
        memory = json.loads(out.read_text(encoding="utf-8"))["memory"]
        return float(memory["estimated_tensor_peak_bytes"])

    def megatron(self, row: dict[str, Any]) -> float:
        """Theoretical memory of the most loaded rank."""
        job = NANOTRON | {
            "tensor_model_parallel_size": row["tp"],
            "pipeline_model_parallel_size": row["pp"],
            "data_parallel_size": row["dp"],
            "world_size": row["world"],
            "micro_batch_size": row["mbs"],
            "microbatches": SEQUENCES // (row["dp"] * row["mbs"]),
        }
        file = self.megatron_lm / "megatron" / "training" / "theoretical_memory_usage.py"
        return self._found(_MEGATRON, str(file), json.dumps(job))

    def _folder(self, model: str) -> Path:
        folder = self.models / model
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(MODELS[model]), encoding="utf-8")
        return folder

    def _found(self, program: str, *words: str) -> float:
        if (program, *words) not in self._known:
            done = subprocess.run(
                [self.python, "-c", program, *words],
                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND"))
            self._known[program, *words] = float(line.split()[1])
        return self._known[program, *words]


def estimates(run: Estimators) -> Iterator[Estimate]:
    """Runs every estimator for the rows that it covers."""
    families = tomllib.loads((HERE / "families.toml").read_text(encoding="utf-8"))["family"]
    known = json.loads((REPORTS / "phantom-truth.json").read_text(encoding="utf-8"))
    for family, described in families.items():
        for row in described["rows"]:
            ours = known.get(family, {}).get(row["id"])
            if ours is None or ours["bytes"] is None:
                continue
            published = float(ours["published"]) * UNITS[ours["unit"]]
            for name, theirs in _theirs(run, family, row):
                yield Estimate(family, row["id"], name, published, ours["bytes"], theirs)


def _theirs(run: Estimators, family: str, row: dict[str, Any]) -> Iterator[tuple[str, float]]:
    name = row["id"]
    if family == "qwen-sft" and not row["more"]:
        yield "accelerate", run.accelerate(row["model"], "train")
        yield "DeepSpeed", run.deepspeed(row["model"], 1)
    if family == "qwen-fsdp" and "graph" not in name:
        yield "DeepSpeed", run.deepspeed(row["model"], 2)
    if family == "qwen-inference" and name == "peak":
        yield "accelerate", run.accelerate(row["model"], "inference")
        yield "FakeGPU", run.fakegpu_llm(row["model"], 9, 2)
    if family == "torchtitan" and name in {"8b-fsdp8", "8b-fsdp128"}:
        yield "DeepSpeed", run.deepspeed("llama-3.1-8b", row["world"])
    if family == "nanotron" and name.endswith("allocated"):
        yield "Megatron-LM", run.megatron(row)


def main() -> None:
    """Runs the estimators and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True)
    parser.add_argument("--work", type=Path, required=True)
    given = parser.parse_args()
    rows = list(estimates(Estimators(given.python, given.work.resolve())))
    facts = json.dumps([asdict(row) for row in rows], indent=1)
    (REPORTS / "estimators.json").write_text(facts + "\n", encoding="utf-8")
    (REPORTS / "estimators.md").write_text(page(rows, _versions(given.python)), encoding="utf-8")


def _versions(python: str) -> str:
    names = ("deepspeed", "accelerate", "transformers")
    program = f"from importlib.metadata import version\nprint(', '.join(f'{{n}} {{version(n)}}' for n in {names}))"
    return subprocess.run([python, "-c", program], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def page(rows: list[Estimate], versions: str) -> str:
    """Returns the report."""
    lines = []
    for row in rows:
        gib = [f"{size / (1 << 30):.2f}" for size in (row.published, row.ours, row.theirs)]
        errors = [f"{100 * (size / row.published - 1):+.1f} %" for size in (row.ours, row.theirs)]
        cells = [row.family, row.row, gib[0], gib[1], errors[0], row.estimator, gib[2], errors[1]]
        lines.append(f"| {' | '.join(cells)} |")
    worst = [
        f"* {name}: {min(errors):+.1f} % to {max(errors):+.1f} % (rows: {len(errors)}); memdiag in the same rows: "
        f"{min(own):+.1f} % to {max(own):+.1f} %."
        for name in dict.fromkeys(row.estimator for row in rows)
        for errors in [[100 * (row.theirs / row.published - 1) for row in rows if row.estimator == name]]
        for own in [[100 * (row.ours / row.published - 1) for row in rows if row.estimator == name]]
    ]
    table = "\n".join(lines)
    return f"""# Other estimators against published peaks of real cards

`python bench/truth/estimators.py --python PYTHON --work FOLDER` reproduces this page. Each row is a peak that others
measured on a real card and published ([phantom-truth.md](phantom-truth.md) names the sources). Every estimator is the
original program: {versions}, FakeGPU and Megatron-LM at the
commits in the bench. Sizes are GiB.

{chr(10).join(worst)}

| family | row | published | memdiag | error | estimator | its figure | error |
|---|---|---:|---:|---:|---|---:|---:|
{table}

What each estimator counts, and why it is applied to these rows:

* accelerate: `estimate-memory` counts weights, gradients and Adam's states of one rank (its columns for half
  precision); for inference, weights alone. The command reads configurations from the Hugging Face Hub, so the bench
  calls the functions that the command calls, with a model of the same configuration.
* DeepSpeed: `estimate_zero3_model_states_mem_needs` (one rank: `estimate_zero2_…`) counts weights, gradients and
  optimizer states, with a factor of 1.5 for buffers, and no activations. FSDP divides the same tensors, so it stands
  for ZeRO-3 here. DeepSpeed assumes 18 bytes for each weight (half precision and fp32 states); the Qwen programs keep
  everything in bfloat16, which explains its high figures there.
* FakeGPU: `estimate-llm` covers inference of decoders: weights, cache and temporary tensors.
* Megatron-LM: `theoretical_memory_usage.py` counts weights, gradients, optimizer states and activations of the most
  loaded rank. The bench replaces two functions that it imports from its package. The rows are nanotron's, whose layers
  divide the same tensors; the formula is for Megatron-LM's own layers, and nanotron's may keep more.
* None of them counts blocks and segments of the allocator. The rows of torchtitan are reserved memory, the others
  allocated memory. Rows with LoRA, QLoRA, float8 or compiled code are left out, since these estimators do not
  cover them.
"""


if __name__ == "__main__":
    main()
