"""A few random programs in the engine and the real allocators, if available (see real_cuda.py and real_npu.py)."""

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.allocator import fuzz_cuda, fuzz_npu
from tests.allocator.programs import cuda_program, npu_program
from tests.allocator.real_npu import Worker

CUDA, NPU = os.environ.get("MEMDIAG_REAL_CUDA"), os.environ.get("MEMDIAG_REAL_NPU")


@pytest.mark.skipif(not CUDA, reason="MEMDIAG_REAL_CUDA names no folder with PyTorch's allocator on a stand-in device")
@pytest.mark.parametrize("seed", range(10))
def test_cuda(seed):
    program = cuda_program(random.Random(seed), 400)  # noqa: S311 - a program, not a secret
    assert fuzz_cuda.difference(program, Path(CUDA), "2.13", "bump", Counter()) == ""


@pytest.mark.skipif(not NPU, reason="MEMDIAG_REAL_NPU names no folder with torch_npu's allocator on a stand-in runtime")
def test_npu(tmp_path):
    worker = Worker(Path(NPU), 600 << 20, "now", tmp_path)
    for seed in range(10):
        # A program, not a secret.
        program = npu_program(random.Random(seed), 400, total=600 << 20, done="now")  # noqa: S311
        truth = worker.run(program)
        assert truth is not None
        assert fuzz_npu.difference(program, truth) == ""
    worker.close()
