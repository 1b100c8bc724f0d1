"""Each safe remedy keeps the losses of the script, without memdiag, after --write."""

import ast

import pytest

from memdiag.fix import write
from memdiag.fix.base import Proposal
from memdiag.fix.edit import Edit
from memdiag.fix.run import Applied
from memdiag.text import phrase
from tests.fix.test_inside import MODEL, SHARDED
from tests.forking import run_script

PRINT = "print([step() for _ in range(5)])\n"
NO_GRAD = "def evaluate():\n    return net(torch.ones(2, 16))\n"
LOAD = (
    "torch.save(net.state_dict(), 'net.pt')\n"
    "state = torch.load('net.pt', map_location='meta')\n"
    "seen = str(state['head.weight'].device)\n"
)
CASES = [  # name, part, settings, program after the model, what it prints last with the remedy
    ("free-gradients", "free_gradients", {}, "print({each.grad for each in net.parameters()})", "{None}"),
    ("no-grad", "no_grad_at", {"calls": []}, "print(evaluate().requires_grad)", "False"),
    ("load-to-host", "load_to_host", {}, "print(seen)", "cpu"),
    ("fsdp-units", "fsdp_units", {"blocks": ["layers.0", "layers.2"]}, SHARDED, ""),
    (
        "memory-fraction",
        "memory_fraction",
        {},
        "print(hasattr(torch.cuda.set_per_process_memory_fraction, '__wrapped__'))",
        "True",
    ),
    (
        "lean-optimizer",
        "lean_optimizer",
        {"kind": "one_by_one"},
        "print(optimizer.param_groups[0]['foreach'])",
        "False",
    ),
    ("lean-optimizer", "lean_optimizer", {"kind": "fused"}, "print(optimizer.param_groups[0]['fused'])", "True"),
    (
        "chunked-loss",
        "chunked_loss",
        {"part_bytes": 7 * 50 * 4},
        "print(hasattr(nn.functional.cross_entropy, '__wrapped__'))",
        "True",
    ),
    (
        "checkpoint",
        "checkpoint_modules",
        {"modules": ["layers.0"]},
        "print('__wrapped__' in vars(net.layers[0].forward))",
        "True",
    ),
    (
        "offload-optimizer",
        "offload_optimizer",
        {"smallest_bytes": 1},
        "print('smallest_bytes' in torch.optim.AdamW.step.__wrapped__.__code__.co_freevars)",
        "True",
    ),
    (
        "offload-saved",
        "offload_saved",
        {"modules": ["layers.0", "layers.1"], "smallest_bytes": 1},
        "print(len(net.layers[1]._forward_hooks))",
        "1",
    ),
]


def outputs(script):
    done = run_script(script)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("name", "part", "settings", "after", "effect"), CASES)
def test_a_safe_remedy_keeps_the_losses(tmp_path, name, part, settings, after, effect):
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    text = MODEL + NO_GRAD + LOAD + PRINT + after + "\n"
    script.write_text(text)
    if name == "no-grad":
        settings = {"calls": [[[str(script), text[: text.index("return net(torch.ones")].count("\n") + 1]]]}
    plain = outputs(script)
    remedy = Proposal(
        name, phrase(f"fix.{name}", count=1, total=1, share="1"), (), Edit(), "", "", None, part, settings
    )
    write.write(Applied((remedy,), "PYTORCH_CUDA_ALLOC_CONF"), ["python", str(script)])
    fixed = outputs(script)
    assert ast.literal_eval(fixed[0]) == pytest.approx(ast.literal_eval(plain[0]), rel=1e-6)
    if name == "fsdp-units":
        assert ast.literal_eval(fixed[1]) == ["", "layers.0", "layers.2"]
        assert ast.literal_eval(fixed[2]) == pytest.approx(ast.literal_eval(plain[2]), rel=1e-6)
    else:
        assert (fixed[-1], plain[-1] == effect) == (effect, False)


def test_allocator_settings_are_set_before_torch_is_imported(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import os\nprint(os.environ['PYTORCH_CUDA_ALLOC_CONF'])\n")
    conf = "expandable_segments:True"
    remedy = Proposal("allocator-settings", phrase("fix.allocator-settings"), (), Edit(), "", "", conf=conf)
    write.write(Applied((remedy,), "PYTORCH_CUDA_ALLOC_CONF"), ["python", str(script)])
    assert outputs(script) == [conf]
