"""``memdiag fit --model``: the command of a recipe, errors, and a model of transformers where it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memdiag.errors import MemdiagError
from memdiag.fit.grid import read_axes
from memdiag.fit.recipes import AXES, MEGATRON, MEGATRON_AXES, PROGRAM, RECIPES, command_of, compute_for
from tests.forking import memdiag_command
from tests.pythons import NO_CUDA, cuda_python

ROOT = Path(__file__).parents[2]
LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 32000,
}


@pytest.fixture
def model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    return tmp_path


SEEING = {
    "model_type": "qwen2_5_vl",
    "text_config": {
        **LLAMA,
        "model_type": "qwen2_5_vl_text",
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]},
    },
    "vision_config": {
        "depth": 2,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_heads": 4,
        "out_hidden_size": 256,
        "fullatt_block_indexes": [1],
    },
    "image_token_id": 31000,
    "video_token_id": 31001,
}
NEEDED = {"zero3": "deepspeed", "megatron": "megatron.core"}


def is_missing(package):
    words = [cuda_python(), "-c", f"import {package}"]
    return bool(subprocess.run(words, capture_output=True, check=False).returncode)


def test_the_command_has_a_placeholder_for_each_axis(model):
    command = command_of("python", model, "train", read_axes(["mbs=1,2", "lora_rank=8,16"]), None)
    assert command[:2] == ("python", str(PROGRAM))
    assert command[-4:] == ("--mbs", "{mbs}", "--lora-rank", "{lora_rank}")


@pytest.mark.parametrize(
    ("recipe", "axes", "world", "said"),
    [
        ("tran", ["mbs=1"], None, "no such recipe"),
        ("fsdp2", ["mbs=1"], None, "several ranks"),
        ("train", ["batch=1"], None, "not an option"),
    ],
)
def test_a_recipe_that_cannot_run_is_an_error_with_a_hint(model, recipe, axes, world, said):
    with pytest.raises(MemdiagError, match=said) as caught:
        command_of("python", model, recipe, read_axes(axes), world)
    assert caught.value.hint


def test_a_model_without_a_configuration_is_an_error(tmp_path):
    with pytest.raises(MemdiagError, match="no such configuration"):
        command_of("python", tmp_path, "train", (), None)


def test_a_recipe_with_its_own_program_has_its_own_axes(model):
    command = command_of("python", model, "megatron", read_axes(["tp=1,2", "ep=1,8"]), "8")
    assert command[1] == str(MEGATRON)
    assert command[-4:] == ("--tp", "{tp}", "--ep", "{ep}")
    with pytest.raises(MemdiagError, match="not an option") as caught:
        command_of("python", model, "megatron", read_axes(["accumulate=1"]), "8")
    assert "micro" in caught.value.hint


def test_models_that_see_need_the_masks_of_their_tokens(model):
    config = model / "config.json"
    assert compute_for(model) is None
    config.write_text(json.dumps(SEEING))
    assert compute_for(config) == "masks"
    config.write_text("{")
    with pytest.raises(MemdiagError, match="JSON"):
        compute_for(model)


def test_the_program_has_the_recipes_and_the_options():
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, str(PROGRAM), "--help"], capture_output=True, text=True, check=True)
    own = [name for name, recipe in RECIPES.items() if recipe.program == PROGRAM]
    assert "{" + ",".join(sorted(own)) + "}" in done.stdout
    assert all(f"--{option}" in done.stdout for option in AXES)


def test_the_program_with_megatron_core_has_the_options():
    text = MEGATRON.read_text(encoding="utf-8")
    assert all(f'"--{option}"' in text for option in MEGATRON_AXES)


@pytest.mark.skipif(not cuda_python(), reason=NO_CUDA)
@pytest.mark.parametrize(
    ("recipe", "room", "options"),
    [
        ("train", "1GiB", []),
        ("inference", "300MiB", []),
        *((name, "2GiB", ["--world", "8"]) for name in ("fsdp2", "zero3", "megatron")),  # buffers of NCCL: 622 MiB
    ],
)
def test_a_model_is_judged_by_its_configuration(model, recipe, room, options):
    if is_missing(NEEDED.get(recipe, "transformers")):
        pytest.skip("the recipe's package is not installed next to the CUDA build of torch")
    words = ["--device", f"cuda:h100-80g,room={room}", "--model", ".", "--recipe", recipe, "--python", cuda_python()]
    done = subprocess.run(
        [*memdiag_command(), "fit", *words, "--grid", "mbs=1,64", "--grid", "seq=512", *options, "--json"],
        cwd=model,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [cell["on"][0]["outcome"] for cell in report["cells"]] == ["fits", "fails"]
    assert not any(cell["error"] for cell in report["cells"])


@pytest.mark.skipif(not cuda_python(), reason=NO_CUDA)
@pytest.mark.parametrize("seq", ["512", "16"])
def test_a_model_that_sees_gets_an_image_for_each_sequence(model, seq):
    if is_missing("transformers"):
        pytest.skip("transformers is not installed next to the CUDA build of torch")
    (model / "config.json").write_text(json.dumps(SEEING))
    words = ["--device", "cuda:h100-80g", "--model", ".", "--python", cuda_python()]
    grid = ["--grid", "mbs=2", "--grid", f"seq={seq}", "--grid", "image=224"]
    done = subprocess.run(
        [*memdiag_command(), "fit", *words, *grid, "--json"],
        cwd=model,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    (cell,) = json.loads(done.stdout)["cells"]
    if seq == "16":
        assert "an image has 64 tokens" in cell["error"]
    else:
        assert cell["on"][0]["outcome"] == "fits", cell["error"]
