"""Call stacks of recordings on the CPU: each function once, with the line at the time of the allocation."""

import pickle
import subprocess

from tests.forking import memdiag_command, python_with_torch

PROGRAM = """
import torch

def nested(depth):
    if depth == 0:
        return torch.ones(100_000)
    return nested(depth - 1)

kept = []
for _ in range(2):
    kept.append(nested(2))
    kept.append([torch.zeros(50_000) for _ in range(2)])
"""


def test_a_function_that_runs_when_recording_starts_stands_in_the_stack_once(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    words = ["record", "-q", "-o", "run", "--", python_with_torch(), "train.py"]
    subprocess.run([*memdiag_command(), *words], cwd=tmp_path, check=True, capture_output=True)
    snapshot = pickle.loads((tmp_path / "run" / "rank0.pkl").read_bytes())
    stacks = {
        tuple((frame["line"], frame["name"]) for frame in entry["frames"] if frame["filename"].endswith("train.py"))
        for entry in snapshot["device_traces"][0]
        if entry["action"] == "alloc" and entry["size"] >= 200_000
    }
    nested = ((6, "nested"), (7, "nested"), (7, "nested"), (11, "<module>"))
    assert nested in stacks
    others = stacks - {nested}  # Python 3.12 inlines a list comprehension
    assert others
    assert {stack[-1] for stack in others} == {(12, "<module>")}
    assert all([name for _, name in stack].count("<module>") == 1 for stack in others)
