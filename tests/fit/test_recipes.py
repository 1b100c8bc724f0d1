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
from memdiag.fit.recipes import AXES, PROGRAM, RECIPES, command_of
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


def has_transformers():
    if not cuda_python():
        return False
    return not subprocess.run([cuda_python(), "-c", "import transformers"], capture_output=True, check=False).returncode


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


def test_the_program_has_the_recipes_and_the_options():
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, str(PROGRAM), "--help"], capture_output=True, text=True, check=True)
    assert "{" + ",".join(sorted(RECIPES)) + "}" in done.stdout
    assert all(f"--{option}" in done.stdout for option in AXES)


@pytest.mark.skipif(not cuda_python(), reason=NO_CUDA)
@pytest.mark.parametrize(("recipe", "options"), [("train", []), ("inference", []), ("fsdp2", ["--world", "8"])])
def test_a_model_is_judged_by_its_configuration(model, recipe, options):
    if not has_transformers():
        pytest.skip("transformers is not installed next to the CUDA build of torch")
    words = ["--device", "cuda:h100-80g,room=1GiB", "--model", ".", "--recipe", recipe, "--python", cuda_python()]
    done = subprocess.run(
        [sys.executable, "-m", "memdiag", "fit", *words, "--grid", "mbs=1,64", "--grid", "seq=512", *options, "--json"],
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
