"""A child of fork that is the first to use an accelerator is recorded, however it ends."""

import subprocess
import sys
from types import ModuleType

import pytest

import memdiag
from memdiag.recorder import forked
from memdiag.recorder.config import Config
from memdiag.recorder.launch import environment_for
from tests.forking import memdiag_command
from tests.pythons import cuda_python

ENGINE = """
import multiprocessing, os, sys, torch

def work(_=None):
    held = [torch.empty(8 << 20, dtype=torch.uint8, device="cuda") for _ in range(3)]
    print("worked", len(held), flush=True)

if __name__ == "__main__":
    assert not torch.cuda.is_initialized()
    way, _, preloaded = sys.argv[1].partition("+")
    if way in ("fork context", "spawn", "forkserver"):
        context = multiprocessing.get_context(way.split()[0])
        context.set_forkserver_preload([preloaded] if preloaded else [])
        children = [context.Process(target=work) for _ in range(2)]
        [child.start() for child in children]
        [child.join() for child in children]
    elif way == "fork":
        pid = os.fork()
        if pid == 0:
            work()
            sys.exit()
        os.waitpid(pid, 0)
    else:
        loader = torch.utils.data.DataLoader(range(4), num_workers=2, multiprocessing_context=preloaded)
        assert len(list(loader)) == 4
        work()
"""


@pytest.mark.parametrize(
    ("way", "number"),
    [
        *(("fork context", 2), ("spawn", 2), ("forkserver", 2), ("forkserver+torch", 2), ("fork", 1)),
        *(("loader+fork", 1), ("loader+spawn", 1), ("loader+forkserver", 1)),
    ],
)
def test_processes_that_use_the_device_are_recorded(tmp_path, way, number):
    python = cuda_python()
    if not python or not sys.platform.startswith("linux"):
        pytest.skip("needs Linux and a Python with a CUDA build of torch")
    (tmp_path / "engine.py").write_text(ENGINE)
    command = [*memdiag_command(), "record", "-q", "--phantom", "cuda:h100-80g", "-o", "run", "--"]
    done = subprocess.run(
        [*command, python, "engine.py", way], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "worked 3\n" * number), done.stderr
    paths = sorted(tmp_path.glob("run/rank*.pkl"))
    assert len(paths) == number, done.stderr
    for path in paths:
        (device,) = memdiag.load(path).devices
        assert device.usage["allocated"].max() == 24 << 20


def test_processes_that_vllm_stops_get_time_to_write_their_files():
    module, given = ModuleType("utils"), []
    module.shutdown = lambda procs, timeout=None: given.append((procs, timeout))
    forked.give_time(module)
    module.shutdown(["engine"])
    module.shutdown(["engine"], timeout=0)
    module.shutdown(["engine"], timeout=300)
    assert given == [(["engine"], 120), (["engine"], 120), (["engine"], 300)]
    assert environment_for(Config("run"), {})["VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS"] == "120"
    chosen = environment_for(Config("run"), {"VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "7"})
    assert chosen["VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS"] == "7"


def test_a_version_of_vllm_without_a_timeout_is_left_as_it_is():
    module = ModuleType("utils")
    module.shutdown = lambda procs: procs
    forked.give_time(module)
    assert module.shutdown(["engine"]) == ["engine"]
