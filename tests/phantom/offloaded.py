"""Helpers for tests that run the snippet of an offloading plan unchanged on the CPU and on simulated devices."""

import contextlib
import io
import json
import os
import subprocess
from pathlib import Path

from memdiag.cli.main import main
from tests.forking import memdiag_command

PROGRAM = Path(__file__).with_name("programs") / "gpt_moved.py"


def record(folder, device, python, **more):
    """Records the GPT program; returns the JSON object that it printed and the path of the trace."""
    phantom = [] if device == "cpu" else ["--phantom", device]
    program = [python, str(PROGRAM), device.partition(":")[0]]
    command = [*memdiag_command(), "record", "-o", str(folder), *phantom, "--", *program]
    # The operators are so small that several threads take three times as long as one.
    env = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder.parent, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{"))), folder / "rank0.pkl"


def simulated(path, *options):
    """Returns the first result of ``memdiag simulate`` with these options."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["simulate", str(path), *options, "--json"]) == 0
    return json.loads(out.getvalue())["results"][0]


def assert_snippet_does_what_the_plan_says(tmp_path, device, python):
    """Asserts that the snippet of a plan moves the planned bytes and reaches the predicted peak, within 2 %.

    The plan offloads only activations and targets 70 % of the recorded peak.
    """
    _, plain = record(tmp_path / "plain", device, python)
    peak = simulated(plain)["peak_reserved_bytes"]
    result = simulated(
        plain,
        "--policy",
        "offload",
        "--max-device-memory",
        str(peak * 7 // 10),
        "--step-seconds",
        "1",
        "--offload-kinds",
        "activation",
    )
    told = result["offload"]
    hooked = told["saved_tensor_hooks"]
    assert told["fits"]
    assert hooked["peak_allocated_bytes"] < 0.75 * peak
    (tmp_path / "snippet.py").write_text(told["snippets"][0]["text"])
    printed, moved = record(tmp_path / "moved", device, python, MEMDIAG_TEST_SNIPPET=str(tmp_path / "snippet.py"))
    got = simulated(moved)
    assert abs(printed["copied"] / 3 - hooked["offloaded_bytes_per_step"]) <= 0.02 * hooked["offloaded_bytes_per_step"]
    assert abs(got["peak_requested_bytes"] - hooked["peak_requested_bytes"]) <= 0.002 * hooked["peak_requested_bytes"]
    # The CPU has no such blocks: in the replay, one keeps a remainder of up to 1 MiB, which depends on addresses.
    spare = 2 << 20 if device == "cpu" else 0
    for key, spared in (("peak_allocated_bytes", spare), ("peak_reserved_bytes", 2 << 20)):
        assert abs(got[key] - hooked[key]) <= 0.02 * hooked[key] + spared
