"""Changes of a program that need no memory give no alarm in ``memdiag check`` with a baseline; others do.

Every change is a marked test in one pytest process. The baseline of all of them is a recording of the original program.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

PROGRAM = '''
import logging

import torch
from torch import nn

log = logging.getLogger("train")


def batch(rows):
    """Returns random inputs."""
    return torch.randn(rows, 256)


def train(steps=4):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 256))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    best = None
    for number in range(steps):
        inputs = batch(64)
        loss = nn.functional.mse_loss(model(inputs), inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        log.info("step %d: %.3f", number, losses[-1])
    return losses, best
'''
TESTS = """
import importlib.util
from pathlib import Path

import pytest


@pytest.mark.memdiag
@pytest.mark.parametrize("name", {names})
def test_program(name):
    path = Path(__file__).with_name(f"{{name}}.py")
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    kept = program.train()
"""

STEP, LOG = "        optimizer.step()\n", '        log.info("step %d: %.3f", number, losses[-1])\n'
LOSSES = "    losses = []\n    best = None\n"
SEED = "    torch.manual_seed(0)\n"
BATCH = "    return torch.randn(rows, 256)\n"
LOSS = "nn.functional.mse_loss(model(inputs), inputs)"
RENAMED = {
    "inputs": "x",
    "model": "net",
    "optimizer": "adam",
    "losses": "history",
    "number": "step",
    "batch": "sample",
    "best": "lowest",
    "rows": "size",
    "log": "logger",
}
REPLACED = {
    "comment_first": ("import logging\n", "# Trains a small model.\nimport logging\n"),
    "comment_in_loop": (STEP, "        # The update.\n" + STEP),
    "comment_at_end": (STEP, STEP[:-1] + "  # the update\n"),
    "docstring": ("def train(steps=4):\n", 'def train(steps=4):\n    """Trains."""\n'),
    "longer_docstring": ('"""Returns random inputs."""', '"""Returns random inputs.\n\n    They are new.\n    """'),
    "blank_lines": ("def train", "\n\n\n\n\ndef train"),
    "seed_first_or_later": (SEED, "    seed = 0\n    torch.manual_seed(seed)\n"),
    "reordered_values": (LOSSES, "    best = None\n    losses = []\n"),
    "reordered_seed": (SEED, "    losses = []\n" + SEED),
    "reordered_functions": ('log = logging.getLogger("train")\n', "\n\ndef unused():\n    pass\n\n\nlog = logging\n"),
    "reordered_log": ("        losses.append(loss.item())\n" + LOG, LOG.replace("losses[-1]", "loss.item()")),
    "log_removed": (LOG, ""),
    "log_twice": (LOG, LOG + LOG),
    "log_debug": ("log.info", "log.debug"),
    "log_formatted": ('"step %d: %.3f", number, losses[-1]', 'f"step {number}: {losses[-1]:.3f}"'),
    "log_every_second": (LOG, "        if number % 2:\n    " + LOG),
    "log_the_rate": (LOG, LOG + '        log.info("rate %s", optimizer.param_groups[0]["lr"])\n'),
    "log_once_before": (LOSSES, LOSSES + '    log.info("begin")\n'),
    "list_copied": (LOG, LOG + "        losses = list(losses)\n"),
    "lowest_loss": (LOG, LOG + "        best = losses[-1] if best is None else min(best, losses[-1])\n"),
    "numbers_kept": (LOG, LOG + "        losses += [float(each) for each in range(100)]\n"),
    "text_kept": (LOG, LOG + "        best = str(number) * 1000\n"),
    "timed": (LOG, LOG + "        best = __import__('time').perf_counter()\n"),
    "exception_handled": (LOG, LOG + "        try:\n            {}[0]\n        except KeyError:\n            pass\n"),
    "typed": ("def batch(rows):", "def batch(rows: int) -> torch.Tensor:"),
    "default_given": ("def train(steps=4):", "def train(steps=4, note=None):"),
    "while_loop": ("    for number in range(steps):\n", "    for number in iter(range(steps)):\n"),
    "result_named": (BATCH, "    made = torch.randn(rows, 256)\n    return made\n"),
    "with_lambda": (LOSSES, LOSSES + "    unused = lambda: None\n"),
    "written_with_keywords": (LOSS, "nn.functional.mse_loss(input=model(inputs), target=inputs)"),
    "mean_reduction_named": (LOSS, "nn.functional.mse_loss(model(inputs), inputs, reduction='mean')"),
    "shape_checked": (STEP, "        assert loss.shape == ()\n" + STEP),
}
RATES = ("2e-3", "5e-4", "1e-4", "1e-5")


def renamed(old, new):
    """Returns the program with a variable, parameter or function renamed."""
    return re.sub(rf"\b{old}\b(?!ging)", new, PROGRAM)


def neutral():
    """Returns changed programs by name."""
    programs = {f"renamed_{old}": renamed(old, new) for old, new in RENAMED.items()}
    programs |= {f"seed_{seed}": PROGRAM.replace("manual_seed(0)", f"manual_seed({seed})") for seed in range(1, 6)}
    programs |= {f"rate_{number}": PROGRAM.replace("1e-3", rate) for number, rate in enumerate(RATES)}
    programs |= {name: PROGRAM.replace(old, new) for name, (old, new) in REPLACED.items()}
    return programs


WASTEFUL = {
    "graphs_kept": PROGRAM.replace("losses.append(loss.item())", "losses.append(model(inputs))").replace("%.3f", "%s"),
    "larger_batch": PROGRAM.replace("batch(64)", "batch(4096)"),
}


def test_fifty_neutral_changes_give_no_alarm_and_two_wasteful_ones_do(root, tmp_path):
    pytest.importorskip("torch", reason="needs torch, which is recorded")
    changed = neutral()
    assert len(changed) == 50
    assert all(text != PROGRAM for text in changed.values())
    programs = {"original": PROGRAM} | changed | WASTEFUL
    for name, text in programs.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    (tmp_path / "test_it.py").write_text(TESTS.format(names=sorted(programs)))
    baseline = tmp_path / "base.json"
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "memdiag.gates.pytest_plugin", "-v"]
    command.append(f"--memdiag-baseline={baseline}")

    def run(*options):
        done = subprocess.run(
            [*command, *options], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        lines = [line.split()[:2] for line in done.stdout.splitlines() if re.match(r"test_it\.py::.*%\]", line)]
        return dict(lines), done.stdout + done.stderr

    test = "test_it.py::test_program[{}]".format
    outcomes, said = run("--memdiag-update", "-k", "original")
    assert outcomes == {test("original"): "PASSED"}, said
    content = json.loads(baseline.read_text())
    content["traces"] = {test(name): content["traces"][test("original")] for name in programs}
    baseline.write_text(json.dumps(content))
    outcomes, said = run()
    assert set(outcomes) == set(map(test, programs)), said
    assert {name for name in outcomes if outcomes[name] != "PASSED"} == set(map(test, WASTEFUL)), said
