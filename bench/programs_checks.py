"""Checks answers about programs of other people with other runs, and writes reports/other-programs-checks.md.

    python bench/programs_checks.py --sources FOLDER --python VENV/bin/python [--device npu:910b-64g]

Two answers are checked on a simulated device:

* ``--find-max``: the command runs again by itself with the largest value, with one less, and with one more. The first
  two must succeed, and the third must run out of memory.
* categories: the requested bytes of parameters, gradients and optimizer states at the peak of allocated memory, beside
  those by hand (programs/by_hand.py, in which memdiag takes no part).

FOLDER and VENV are those of programs_of_others.py, whose table names the programs. ``OTHERS`` need the VENV of
phantom_programs.py, and are chosen with --only.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from others_table import BY_HAND, HERE, Program, read_table, unpack
from programs_of_others import run

import memdiag
from memdiag.trace import schema
from memdiag.units import format_bytes

STEM = HERE.parent / "reports" / "other-programs-checks"
SECONDS = 300  # limit of one run
CATEGORIES = {"parameter": "parameters", "gradient": "gradients", "optimizer_state": "optimizer states"}


@dataclass(frozen=True)
class Search:
    """What is searched in a program.

    Attributes:
        argument: Appended to the command, with the placeholder ``{batch}``.
        room: Memory for PyTorch on the simulated device, so that small batches already fill it.
        high: Upper end of the range.
        low: Lower end.
    """

    argument: str
    room: str
    high: int
    low: int = 1


SEARCHES = {
    "makemore transformer": Search("--batch-size {batch}", "256MiB", 400),
    "makemore mlp": Search("--batch-size {batch}", "80MiB", 1000),
    "minGPT adder, gpt-nano": Search("--trainer.batch_size={batch}", "128MiB", 1000),
    "pytorch/examples mnist": Search("--test-batch-size 16 --batch-size {batch}", "256MiB", 500),
    "pytorch/examples word_language_model, LSTM": Search("--batch_size {batch}", "160MiB", 400),
    "PyTorch-GAN dcgan": Search("--batch_size {batch}", "512MiB", 400),
    "cleanrl dqn": Search("--batch-size {batch}", "96MiB", 60_000),
    "nanoGPT characters, 10.7 M parameters": Search("--batch_size={batch}", "4GiB", 250),
    "pytorch/examples imagenet, resnet18 on 96 images": Search("-b {batch}", "1GiB", 90),
    "timm train.py, vit_small, AMP, EMA": Search("-b {batch}", "2GiB", 90),
    "diffusers DreamBooth with LoRA, small random weights": Search("--train_batch_size {batch}", "192MiB", 100),
    "pytorch/examples dcgan, fake data": Search("--batchSize {batch}", "256MiB", 100),
    "pytorch/examples imagenet, resnet50, --gpu 0": Search("-b {batch}", "3GiB", 90),
    "torchvision RetinaNet": Search("{batch}", "8GiB", 20),
    "torch_geometric GCN": Search("{batch}", "256MiB", 20_000, low=20),
    "transformers Trainer with PEFT LoRA": Search("--batch {batch}", "512MiB", 100),
    "nanoGPT GPT-2 of 124 M, no data loader (bench.py)": Search("--batch_size={batch}", "8GiB", 40),
    "nanoGPT DDP of 2": Search("--batch_size={batch}", "4GiB", 250),
    "minGPT chargpt, gpt-mini": Search("--trainer.batch_size={batch}", "512MiB", 100),
    "pytorch/examples word_language_model, GRU": Search("--batch_size {batch}", "160MiB", 400),
    "pytorch/examples word_language_model, Transformer": Search("--batch_size {batch}", "160MiB", 400),
    "cleanrl c51": Search("--batch-size {batch}", "96MiB", 60_000),
    "cleanrl td3_continuous_action": Search("--batch-size {batch}", "96MiB", 60_000),
    "torchvision Faster R-CNN": Search("{batch}", "8GiB", 20),
    "torchvision Mask R-CNN": Search("{batch}", "48GiB", 20),
    "torch_geometric SAGE": Search("{batch}", "256MiB", 20_000, low=20),
    "torch_geometric GAT": Search("{batch}", "512MiB", 20_000, low=20),
    "TRL DPOTrainer": Search("--batch {batch}", "1GiB", 32),
    "bitsandbytes AdamW8bit": Search("--batch {batch}", "2GiB", 100),
    "makemore rnn": Search("--batch-size {batch}", "70MiB", 1000),
    "makemore gru": Search("--batch-size {batch}", "74MiB", 1000),
    "makemore bow": Search("--batch-size {batch}", "88MiB", 2000),
    "makemore bigram": Search("--batch-size {batch}", "24MiB", 10_000),
    "pytorch/examples word_language_model, RNN_TANH": Search("--batch_size {batch}", "140MiB", 400),
    "pytorch/examples siamese_network": Search("--test-batch-size 16 --batch-size {batch}", "354MiB", 500, low=2),
    "PyTorch torch.func, L-BFGS with second derivatives": Search("{batch}", "216MiB", 600, low=16),
    "PyTorch make_graphed_callables": Search("{batch}", "340MiB", 1500),
    "PyTorch LSTM on sequences of varying length": Search("{batch}", "232MiB", 120),
    "vit-pytorch ViT, float16, GradScaler, EMA": Search("{batch}", "256MiB", 80),
    "torchao int8 weights, static key-value cache": Search("{batch}", "82MiB", 64),
    "transformers generate with its key-value cache": Search("{batch}", "326MiB", 40),
    "MONAI 3D U-Net, sliding window": Search("{batch}", "64MiB", 20),
    "transformers serving loop of varying lengths": Search("{batch}", "1172MiB", 10),
    "pytorch/examples vae": Search("--batch-size {batch}", "88MiB", 256),
    "TRL SFTTrainer": Search("--batch {batch}", "842MiB", 32),
    "pytorch/examples mnist_rnn": Search("--test-batch-size 16 --batch-size {batch}", "86MiB", 400, low=2),
    "gpytorch exact Gaussian process": Search("{batch}", "76MiB", 800, low=300),
    "pytorch/examples super_resolution": Search("--testBatchSize 1 --batchSize {batch}", "128MiB", 12),
    "nanoGPT bench.py inside torch.profiler": Search("--batch_size={batch}", "3890MiB", 20),
    "cleanrl sac_continuous_action": Search("--batch-size {batch}", "90MiB", 8000),
    "keras Keras with the torch backend": Search("{batch}", "134MiB", 256, low=16),
    "torchsde Milstein": Search("{batch}", "220MiB", 30_000, low=3000),
    "kornia random images": Search("{batch}", "138MiB", 100, low=40),
    "torchaudio Conformer, sequences of varying length": Search("{batch}", "142MiB", 40, low=4),
    "pytorch-metric-learning triplets of a miner": Search("{batch}", "578MiB", 80, low=24),
    "PyTorch averaged weights, update_bn": Search("{batch}", "158MiB", 1000, low=300),
    "torchcrf Viterbi decoding": Search("{batch}", "88MiB", 1300, low=700),
    "pytorch-forecasting temporal fusion transformer": Search("{batch}", "80MiB", 700, low=350),
    "flash-linear-attention gated linear attention": Search("--batch {batch}", "914MiB", 16),
    "lightning torchmetrics, early stopping": Search("{batch}", "102MiB", 6500, low=4000),
    "nanoGPT compiled": Search("--batch_size={batch}", "1682MiB", 100, low=40),
    "pytorch/examples mnist_forward_forward": Search(
        "--epochs 1 --test_size 16 --train_size {batch}", "126MiB", 400, low=200
    ),
    "PyTorch-GAN wgan_gp": Search("--batch_size {batch}", "120MiB", 240, low=120),
    "PyTorch second stream, workers, recomputing, captured graph": Search("{batch}", "174MiB", 390, low=200),
    "cleanrl pqn": Search(
        "--num-envs 256 --num-minibatches 1 --update-epochs 1 --total-timesteps 65536 --num-steps {batch}",
        "106MiB",
        100,
        low=40,
    ),
    "cleanrl ppo": Search(
        "--num-envs 256 --num-minibatches 1 --update-epochs 1 --total-timesteps 65536 --num-steps {batch}",
        "108MiB",
        100,
        low=40,
    ),
    "fastai fine_tune of a resnet18": Search("{batch}", "290MiB", 16, low=3),
    "stable-baselines3 A2C": Search("{batch}", "68MiB", 2600, low=1500),
    "TRL GRPOTrainer with generation": Search("--batch {batch}", "104MiB", 32, low=4),
    "stable-baselines3 PPO": Search("{batch}", "68MiB", 2600, low=1500),
    "sentence-transformers contrastive training of a small BERT": Search("{batch}", "284MiB", 72, low=56),
    "denoising-diffusion-pytorch Trainer": Search("{batch}", "430MiB", 26, low=16),
    "Pytorch-UNet train.py on 24 images": Search("--scale 1 --batch-size {batch}", "1088MiB", 14, low=4),
    "stable-baselines3 SAC": Search("{batch}", "90MiB", 2600, low=1500),
    "pytorch/examples minGPT-ddp, 2 ranks": Search("trainer_config.batch_size={batch}", "2206MiB", 35, low=29),
    "pytorch/examples imagenet, DDP of 2 by mp.spawn": Search("-b {batch}", "1058MiB", 36, low=20),
    "DeepSpeed ZeRO-1, rank 3 of 8": Search("batch={batch}", "3388MiB", 12, low=4),
    "PyTorch pipelining, rank 3 of 8": Search("batch={batch}", "2670MiB", 90, low=40),
    "torchtitan Llama 3, rank 3 of 8": Search("--training.local_batch_size {batch}", "1912MiB", 12, low=4),
    "DeepSpeed ZeRO-3, rank 3 of 8": Search("batch={batch}", "3492MiB", 12, low=4),
    "DeepSpeed ZeRO-2, rank 3 of 8": Search("batch={batch}", "3388MiB", 12, low=4),
    "DeepSpeed ZeRO-2, optimizer on the host, rank 3 of 8": Search("batch={batch}", "3388MiB", 12, low=4),
    "timm train.py, resnet50, 96 images": Search("-b {batch}", "958MiB", 12, low=4),
    "PyTorch-GAN infogan": Search("--batch_size {batch}", "600MiB", 400, low=128),
    "torchdiffeq dopri5 with the adjoint method": Search("{batch}", "68MiB", 3000, low=1000),
}
NPU_SEARCHES = {
    "makemore transformer": Search("--batch-size {batch}", "128MiB", 400),
    "pytorch/examples mnist": Search("--test-batch-size 16 --batch-size {batch}", "160MiB", 500),
    "pytorch/examples word_language_model, LSTM": Search("--batch_size {batch}", "100MiB", 400),
    "minGPT adder, gpt-nano": Search("--trainer.batch_size={batch}", "64MiB", 1000),
    "torch_geometric GCN": Search("{batch}", "256MiB", 20_000, low=20),
    "nanoGPT characters, 10.7 M parameters": Search("--batch_size={batch}", "4GiB", 250),
    "pytorch/examples imagenet, resnet18 on 96 images": Search("-b {batch}", "512MiB", 90),
    "timm train.py, vit_small, AMP, EMA": Search("-b {batch}", "2GiB", 90),
    "pytorch/examples word_language_model, Transformer": Search("--batch_size {batch}", "100MiB", 400),
    "torch_geometric GAT": Search("{batch}", "380MiB", 15_000, low=20),
    "TRL SFTTrainer": Search("--batch {batch}", "1168MiB", 32),
    "transformers Trainer with PEFT LoRA": Search("--batch {batch}", "400MiB", 32),
    "makemore rnn": Search("--batch-size {batch}", "6MiB", 500),
    "makemore gru": Search("--batch-size {batch}", "10MiB", 500),
    "makemore mlp": Search("--batch-size {batch}", "64MiB", 1000),
    "makemore bow": Search("--batch-size {batch}", "24MiB", 1000),
    "torch_geometric SAGE": Search("{batch}", "156MiB", 15_000, low=20),
    "vit-pytorch ViT, float16, GradScaler, EMA": Search("{batch}", "178MiB", 80),
    "pytorch/examples word_language_model, GRU": Search("--batch_size {batch}", "108MiB", 140, low=70),
    "PyTorch averaged weights, update_bn": Search("{batch}", "94MiB", 1000, low=300),
    "pytorch/examples word_language_model, RNN_TANH": Search("--batch_size {batch}", "74MiB", 140, low=70),
    "kornia random images": Search("{batch}", "70MiB", 100, low=40),
    "torchcrf Viterbi decoding": Search("{batch}", "24MiB", 1200, low=900),
    "makemore bigram": Search("--batch-size {batch}", "22MiB", 3400, low=2700),
    "pytorch/examples super_resolution": Search("--testBatchSize 1 --batchSize {batch}", "74MiB", 12),
    "pytorch/examples mnist_rnn": Search("--test-batch-size 16 --batch-size {batch}", "22MiB", 200, low=130),
    "PyTorch second stream, workers, recomputing, captured graph": Search("{batch}", "138MiB", 360, low=240),
    "pytorch/examples dcgan, fake data": Search("--batchSize {batch}", "174MiB", 80, low=10),
    "PyTorch LSTM on sequences of varying length": Search("{batch}", "166MiB", 50, low=20),
    "pytorch-metric-learning triplets of a miner": Search("{batch}", "252MiB", 60, low=40),
    "pytorch/examples mnist_forward_forward": Search(
        "--epochs 1 --test_size 16 --train_size {batch}", "62MiB", 360, low=260
    ),
    "transformers generate with its key-value cache": Search("{batch}", "220MiB", 16, low=4),
    "PyTorch-GAN cgan": Search("--batch_size {batch}", "72MiB", 500, low=100),
    "PyTorch-GAN wgan_gp": Search("--batch_size {batch}", "56MiB", 240, low=120),
    "gpytorch exact Gaussian process": Search("{batch}", "22MiB", 1400, low=600),
    "cleanrl ppo": Search(
        "--num-envs 256 --num-minibatches 1 --update-epochs 1 --total-timesteps 65536 --num-steps {batch}",
        "44MiB",
        100,
        low=40,
    ),
    "pytorch/examples vae": Search("--batch-size {batch}", "25MiB", 256, low=190),
    "stable-baselines3 A2C": Search("{batch}", "4MiB", 2600, low=1500),
    "stable-baselines3 PPO": Search("{batch}", "4MiB", 2600, low=1500),
    "stable-baselines3 SAC": Search("{batch}", "26MiB", 2600, low=1500),
    "TRL GRPOTrainer with generation": Search("--batch {batch}", "64MiB", 32, low=4),
    "PyTorch-GAN dcgan": Search("--batch_size {batch}", "138MiB", 80, low=48),
    "minGPT chargpt, gpt-mini": Search("--trainer.batch_size={batch}", "240MiB", 14, low=4),
    "fastai fine_tune of a resnet18": Search("{batch}", "226MiB", 16, low=3),
    "TRL DPOTrainer": Search("--batch {batch}", "1354MiB", 8, low=2),
    "nanoGPT DDP of 2": Search("--batch_size={batch}", "1928MiB", 80, low=50),
    "pytorch/examples minGPT-ddp, 2 ranks": Search("trainer_config.batch_size={batch}", "2016MiB", 35, low=29),
    "timm train.py, resnet50, 96 images": Search("-b {batch}", "1056MiB", 12, low=4),
    "nanoGPT GPT-2 of 124 M, no data loader (bench.py)": Search("--batch_size={batch}", "7506MiB", 6, low=2),
    "cleanrl dqn": Search("--batch-size {batch}", "234MiB", 200_000, low=50000),
    "PyTorch-GAN infogan": Search("--batch_size {batch}", "1052MiB", 1000, low=300),
    "torchdiffeq dopri5 with the adjoint method": Search("{batch}", "4MiB", 3000, low=1000),
}


def _as_rank_3(name: str, command: str) -> Program:
    """One process as rank 3 of 8, with packages of phantom_programs.py."""
    family, _, rest = name.partition(" ")
    return Program(family, rest, command, options=("--as-rank", "3", "--world", "8"))


# Programs that are not in the table of programs_of_others.py, but in that of phantom_programs.py.
OTHERS = [
    _as_rank_3("DeepSpeed ZeRO-1, rank 3 of 8", "deepspeed_zero.py 1"),
    _as_rank_3("DeepSpeed ZeRO-2, rank 3 of 8", "deepspeed_zero.py 2"),
    _as_rank_3("DeepSpeed ZeRO-3, rank 3 of 8", "deepspeed_zero.py 3"),
    _as_rank_3("DeepSpeed ZeRO-2, optimizer on the host, rank 3 of 8", "deepspeed_zero.py 2 offload"),
    _as_rank_3("torchtitan Llama 3, rank 3 of 8", "torchtitan_own.py llama3"),
    _as_rank_3("PyTorch pipelining, rank 3 of 8", "parallel.py pipeline"),
]


@dataclass
class Checked:
    """What came of one program."""

    name: str
    room: str
    device: str = "cuda:h100-80g"
    largest: int | None = None
    failing: int | None = None
    ends: dict[str, str] = field(default_factory=dict)
    by_category: dict[str, int] = field(default_factory=dict)
    by_hand: dict[str, int] = field(default_factory=dict)


def check(
    program: Program,
    search: Search,
    given: argparse.Namespace,
    commits: Mapping[str, str],
    kept: Checked | None = None,
) -> Checked:
    """Checks one program; only its categories if it has a row (``kept``)."""
    found = kept or Checked(f"{program.family} {program.name}", search.room, given.device)
    counted = json.loads(BY_HAND.read_text(encoding="utf-8")).get(found.name) or {}
    found.by_hand = {part: size for part, size in counted.items() if part in CATEGORIES.values()}
    with tempfile.TemporaryDirectory(prefix="check-") as scratch:
        ready = unpack(program, given.device.partition(":")[0], given, commits, Path(scratch) / "source")
        whole = f"{given.device},devices={program.devices}" if program.devices else given.device

        def record(name: str, device: str, arguments: list[str], *options: str) -> tuple[int, str, Path]:
            output = Path(scratch) / name
            own = ["-q", "--phantom", device, *program.options, *options, "-o", str(output), "--"]
            command = [sys.executable, "-m", "memdiag", "record", *own, *ready.words, *arguments]
            limit = SECONDS * (12 if options else 1)
            status, _, _, said = run(command, ready.folder, ready.environment, limit)
            return status, said, output

        status, said, output = record("plain", whole, [])
        if status:
            raise RuntimeError(f"{found.name} ended with exit status {status}: {said[-500:]}")
        found.by_category = categories(min(output.glob("rank*.pkl")))
        if kept is not None:
            return found
        small = f"{whole},room={search.room}"
        status, said, output = record(
            "search", small, search.argument.split(), "--find-max", f"batch={search.low}..{search.high}"
        )
        if status > 1:
            raise RuntimeError(f"{found.name}: the search ended with exit status {status}: {said[-500:]}")
        answer = json.loads((output / "find-max.json").read_text(encoding="utf-8"))
        found.largest, found.failing = answer["largest_fitting"], answer["smallest_failing"]
        for value in (found.largest - 1, found.largest, found.largest + 1) if found.largest else ():
            arguments = search.argument.replace("{batch}", str(value)).split()
            status, said, _ = record(f"at-{value}", small, arguments)
            found.ends[str(value)] = "fits" if not status else "out of memory" if "out of memory" in said else "fails"
    return found


def categories(trace: Path) -> dict[str, int]:
    """The bytes that the program requested of each category, at the peak of allocated memory."""
    device = max(memdiag.load(trace).devices, key=lambda one: int(one.usage["allocated"].max(initial=0)))
    live = device.live(device.peak("allocated"))
    category, size = device.tensors.category[live], device.tensors.requested_bytes[live]
    return {name: int(size[category == number].sum()) for number, name in enumerate(schema.CATEGORIES)}


def line_of(found: Checked) -> str:
    """One row of the table."""
    expected = ["fits", "fits", "out of memory"]
    ends = ", ".join(f"{value} {end}" for value, end in found.ends.items())
    confirmed = "yes" if list(found.ends.values()) == expected else "no"
    shown = [
        f"{format_bytes(found.by_category.get(name, 0))} / {format_bytes(found.by_hand[part])}"
        if part in found.by_hand
        else f"{format_bytes(found.by_category.get(name, 0))} / not counted"
        for name, part in CATEGORIES.items()
    ]
    facts = [found.name, found.device, found.room, str(found.largest), ends, confirmed, *shown]
    return f"| {' | '.join(facts)} |"


def write(rows: list[Checked]) -> None:
    """Writes the report and the rows."""
    head = STEM.with_suffix(".md").read_text(encoding="utf-8").partition("<!-- table -->")[0]
    table = [
        f"| program | device | memory | largest | runs beside it | confirmed | {' | '.join(CATEGORIES.values())} |",
        "|---|---|--:|--:|---|---|--:|--:|--:|",
        *map(line_of, rows),
    ]
    STEM.with_suffix(".md").write_text(f"{head}<!-- table -->\n\n" + "\n".join(table) + "\n", encoding="utf-8")
    STEM.with_suffix(".json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Checks the programs that have no row, and writes the report after each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sources", type=Path, required=True, help="folder with the clones of the repositories")
    parser.add_argument("--python", required=True)
    parser.add_argument("--device", default="cuda:h100-80g", help="a phantom device, for which the Python has torch")
    parser.add_argument("--only", default="", help="programs whose family or name holds one of these, by ;")
    parser.add_argument("--again", action="store_true", help="also programs that have a row")
    parser.add_argument("--categories", action="store_true", help="measure the categories of all rows again")
    given = parser.parse_args()
    commits, programs = read_table()
    programs = [*programs, *OTHERS]
    file = STEM.with_suffix(".json")
    kept = [Checked(**row) for row in json.loads(file.read_text(encoding="utf-8"))] if file.exists() else []
    rows = {(row.name, row.device): row for row in kept}
    searches = NPU_SEARCHES if given.device.startswith("npu") else SEARCHES
    order = [*SEARCHES, *(name for name in NPU_SEARCHES if name not in SEARCHES)]
    for name, search in searches.items():
        row = None if given.again else rows.get((name, given.device))
        if any(part in name for part in given.only.split(";")) and (row is not None) == given.categories:
            program = next(one for one in programs if f"{one.family} {one.name}" == name)
            try:
                rows[name, given.device] = check(program, search, given, commits, row)
            except RuntimeError as error:
                print(error, file=sys.stderr)
                continue
            print(line_of(rows[name, given.device]), flush=True)
            write(sorted(rows.values(), key=lambda one: (one.device, order.index(one.name))))


if __name__ == "__main__":
    main()
