r"""Generates logs of programs that did not run out of memory but often mention it.

``lines(seed)`` yields lines without end, and ``text(num_bytes)`` returns a log. Any message that memdiag finds in one
is a false alarm.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

Maker = Callable[[random.Random], str]


def text(num_bytes: int, seed: int = 0) -> str:
    """Returns a log of at least ``num_bytes`` characters."""
    made: list[str] = []
    size = 0
    for line in lines(seed):
        made.append(line)
        size += len(line) + 1
        if size >= num_bytes:
            break
    return "\n".join(made) + "\n"


def lines(seed: int = 0) -> Iterator[str]:
    """Yields lines grouped by subject, with or without a logger's prefix."""
    chance = random.Random(seed)  # noqa: S311 - a log, no secret
    while True:
        made = chance.choice(MAKERS)(chance).split("\n")
        before = chance.choice(PREFIXES)(chance) if chance.random() < 0.6 else ""
        for line in made:
            yield before + line


def _stamp(chance: random.Random) -> str:
    return f"2024-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02} {_clock(chance)}"


def _clock(chance: random.Random) -> str:
    return f"{chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}"


def _size(chance: random.Random) -> str:
    return f"{chance.random() * 90:.2f} {chance.choice(('GiB', 'MiB', 'GB', 'MB'))}"


PREFIXES: tuple[Maker, ...] = (
    lambda chance: f"[rank{chance.randrange(64)}]: ",
    lambda chance: f"[default{chance.randrange(8)}]:",
    lambda chance: (
        f"({chance.choice(('RayTrainWorker', 'WorkerDict', 'TaskRunner'))} pid={chance.randrange(1, 1 << 22)}) "
    ),
    lambda chance: f"{_stamp(chance)},{chance.randrange(1000):03} - trainer.py[line:{chance.randrange(999)}] - INFO: ",
    lambda chance: f"INFO {_stamp(chance)[5:]} [core.py:{chance.randrange(999)}] ",
    lambda chance: f"server-{chance.randrange(9)}  | ",
    lambda chance: f"{_stamp(chance).replace(' ', 'T')}.{chance.randrange(10**7):07}Z ",
    lambda chance: f"{chance.randrange(64)}: ",
)


def _step(chance: random.Random) -> str:
    step, loss = chance.randrange(90000), chance.random() * 9
    return chance.choice(
        (
            (
                f"{{'loss': {loss:.4f}, 'grad_norm': {chance.random():.3f}, 'memory(GiB)': {chance.random() * 80:.2f}, "
                "'epoch': 0.4}"
            ),
            f"step {step} loss {loss:.5f} | mem {_size(chance)} | reserved {_size(chance)} | tokens/s {step}",
            (
                f" iteration {step:8}/ 100000 | elapsed time per iteration (ms): {loss * 1000:.1f} | skipped "
                "iterations: 0 | nan: 0 |"
            ),
            f"Epoch: [{step % 90}]  [{step % 500}/500]  eta: 0:03:12  lr: 0.000100  loss: {loss:.4f}  max mem: {step}",
            (
                f"[2024-05-11 {_clock(chance)},980] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, "
                "lr=[1e-05]"
            ),
            f"before forward: allocated {_size(chance)}, reserved {_size(chance)}, max_allocated {_size(chance)}",
        )
    )


def _bar(chance: random.Random) -> str:
    done = chance.randrange(100)
    bar = "\u2588" * (done // 10)
    end = (
        f"{done}/100 [00:{done:02}<00:{99 - done:02}, {chance.random() * 9:.2f}it/s, gpu_mem={_size(chance)}, "
        "memory=ok]"
    )
    return "\r".join(f"Train: {done:3}%|{bar:<10}| {end}" for _ in range(chance.randrange(1, 4)))


def _warning(chance: random.Random) -> str:
    return chance.choice(
        (
            f"[WARNING] [stage3.py:1850:step] {chance.randrange(9)} pytorch allocator cache flushes since last step.",
            (
                "this happens when there is high memory pressure and is detrimental to performance. consider adjusting "
                "settings"
            ),
            (
                "If you are unable to make the cache flushes go away consider adding empty_cache() calls in the "
                "training loop"
            ),
            "Warning: expandable_segments not supported on this platform (function operator())",
            "UserWarning: PYTORCH_CUDA_ALLOC_CONF is deprecated, use PYTORCH_ALLOC_CONF instead",
            (
                "[W ProcessGroupNCCL.cpp:1553] Warning: destroy_process_group() was not called before program exit, "
                "which can leak resources."
            ),
            (
                "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your "
                "system being overloaded"
            ),
            (
                "UserWarning: 'pin_memory' argument is set as true but no accelerator is found, then device pinned "
                "memory won't be used."
            ),
            (
                "This DataLoader will create 16 worker processes in total. Our suggested max number of worker in "
                "current system is 8"
            ),
            "Shared memory /dev/shm has 64M, which is small for data loaders; consider docker run --shm-size",
            "WARNING: gradient checkpointing is disabled, memory consumption may be high",
            "kernel: python[4711]: segfault at 8 ip 00007f sp 00007f error 4 in libtorch_cpu.so",
            (
                "Detected kernel version 4.18.0, which is below the recommended minimum of 5.5.0; this can cause the "
                "process to hang."
            ),
            f"[NPU] memory usage of device {chance.randrange(8)}: used 31 GiB, peak 59 GiB",
        )
    )


def _traceback(chance: random.Random) -> str:
    error = chance.choice(
        (
            "ValueError: could not broadcast input array from shape (3,224,224) into shape (3,256,256)",
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 768x10)",
            (
                "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 "
                "and cpu!"
            ),
            "KeyError: 'memory'",
            "FileNotFoundError: [Errno 2] No such file or directory: '/data/out_of_memory_cases/train.json'",
            "RuntimeError: CUDA error: device-side assert triggered",
            "RuntimeError: CUDA error: an illegal memory access was encountered",
            "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
            "ConnectionResetError: [Errno 104] Connection reset by peer",
            "OSError: [Errno 28] No space left on device",
            "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
            "AttributeError: module 'torch.cuda' has no attribute 'memory_snapshot_all'",
            "KeyboardInterrupt",
            "TimeoutError: no heartbeat for 600 s, the worker was stopped",
        )
    )
    frames = "\n".join(
        (
            f'  File "/opt/app/{name}.py", line {chance.randrange(900)}, in {name}\n    {name}(memory=memory, '
            "allocator=self.allocator)"
        )
        for name in chance.sample(("train", "forward", "allocate", "step", "check_memory", "empty_cache"), 3)
    )
    return f"Traceback (most recent call last):\n{frames}\n{error}"


def _document(chance: random.Random) -> str:
    return chance.choice(
        (
            "If training runs out of memory, reduce the batch size or turn on gradient checkpointing.",
            "FAQ: what to do about CUDA out of memory errors? See docs/memory.md before opening a ticket.",
            "* Fixed: the server no longer runs out of memory with long prompts (#4711)",
            "You can avoid out-of-memory errors by setting max_split_size_mb, see the notes on memory management.",
            "The flag --oom-score-adj tells the kernel's OOM killer whom to prefer.",
            "memory_limit: 16Gi  # the pod is OOMKilled beyond",
            "When an allocation fails, the allocator frees its cached blocks and tries again.",
            (
                "--gpu-memory-utilization: share of the card to use; lower it if the engine does not start for lack of "
                "memory"
            ),
            "Rules: no try/except around torch.cuda.OutOfMemoryError in library code.",
            "If the console shows `RuntimeError: CUDA out of memory`, halve the batch size first.",
            "When you get 'RuntimeError: CUDA out of memory', another program may hold the card.",
            "std::bad_alloc is thrown by operator new if no memory can be had.",
            "Exit code 137 means that a process got signal 9.",
            "  reason: OOMKilled means that the limit of a container was reached",
            "./docs/faq.md:12:RuntimeError: CUDA out of memory.",
            "notes/errors.rst:7:torch.OutOfMemoryError: CUDA out of memory.",
            "如果显存不足\uff0c请减小 batch size 或开启梯度检查点。",
            "本节介绍内存管理与显存碎片的原因\uff0c以及如何调整分配器。",
            "开始训练\uff0c共 8 张卡\uff0c每张卡显存 64 GB\uff0c内存充足。",
        )
    )


def _code(chance: random.Random) -> str:
    return chance.choice(
        (
            "except torch.cuda.OutOfMemoryError:\n    torch.cuda.empty_cache()\n    batch_size //= 2",
            "except RuntimeError as error:\n    if 'out of memory' not in str(error):\n        raise\n    retry()",
            'class OutOfMemoryError(RuntimeError):\n    """Raised when a device has no memory left."""',
            "if free < requested:\n    raise MemoryError(f'need {requested} bytes, {free} are free')",
            "cudaError_t status = cudaMalloc(&pointer, size);\nif (status == cudaErrorMemoryAllocation) return false;",
            (
                "def allocate(self, size: int) -> Block:\n    block = self.free_blocks.best_fit(size)\n    return "
                "block or self.grow(size)"
            ),
            "assert torch.cuda.memory_allocated() < limit, 'too much memory'",
            "# TODO: what if cudaMalloc fails? For now the process just dies.",
            "subprocess.run(['pkill', '-9', 'python'])  # kill workers that are left",
            'assert "DefaultCPUAllocator: not enough memory" not in log',
            "if (!pointer) {\n  throw std::bad_alloc();\n}",
            "} catch (const std::bad_alloc& error) {\n  return nullptr;\n}",
            "#define UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY 39",
            "  status = CUBLAS_STATUS_ALLOC_FAILED;",
            'warnings.warn("ResourceExhaustedError: OOM when allocating tensor with shape")',
            "AssertionError: 'CUDA out of memory' not found in 'all is well'",
            'def test_full_device(): "RuntimeError: CUDA out of memory"',
            "tests/test_retry.py:31:    raise RuntimeError('CUDA out of memory.')",
        )
    )


def _table(chance: random.Random) -> str:
    return chance.choice((_nvidia_smi, _memory_summary, _profiler))(chance)


def _nvidia_smi(chance: random.Random) -> str:
    used = chance.randrange(80000)
    return (
        "+-----------------------------------------+------------------------+----------------------+\n"
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
        f"| N/A   34C    P0             70W /  700W | {used:8}MiB /  81559MiB | {chance.randrange(100):7}%      "
        "Default |\n"
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n"
        f"|    0   N/A  N/A         {chance.randrange(1 << 20):7}      C   python                            "
        f"{used:7}MiB |"
    )


def _memory_summary(chance: random.Random) -> str:
    return (
        "|===========================================================================|\n"
        "|                  PyTorch CUDA memory summary, device ID 0                 |\n"
        "|            CUDA OOMs: 0            |        cudaMalloc retries: 0         |\n"
        "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n"
        f"| Allocated memory      | {chance.randrange(99999):7} MiB| {chance.randrange(99999):7} MiB|  1024 GiB  |  "
        "1023 GiB  |\n"
        "| GPU reserved memory   |   30000 MiB|   31000 MiB|    31 GiB  |  0 B       |\n"
        "| Non-releasable memory |     100 MiB|     900 MiB|   100 GiB  |    99 GiB  |"
    )


def _profiler(chance: random.Random) -> str:
    rows = "\n".join(
        f"{name:>24}  {chance.random() * 100:9.2f}%  {chance.random() * 900:9.3f}ms  {chance.randrange(9999):6} Mb"
        for name in ("aten::empty", "aten::convolution", "cudaMalloc", "cudaFree", "[memory]", "cudaHostAlloc")
    )
    return f"                    Name   Self CPU %  CPU total  CUDA Mem\n{rows}"


def _engine(chance: random.Random) -> str:
    return chance.choice(
        (
            f"Memory profiling takes {chance.random() * 9:.2f} seconds",
            (
                f"the current vLLM instance can use total_gpu_memory ({_size(chance)}) x gpu_memory_utilization (0.90) "
                f"= {_size(chance)}"
            ),
            f"model weights take {_size(chance)}; non_torch_memory takes {_size(chance)}; the rest is for the KV cache",
            (
                f"PyTorch activation peak memory takes {_size(chance)}; the memory reserved for KV Cache is "
                f"{_size(chance)}."
            ),
            f"GPU KV cache size: {chance.randrange(900000):,} tokens",
            f"Available KV cache memory: {_size(chance)}",
            f"Maximum concurrency for 32,768 tokens per request: {chance.random() * 40:.2f}x",
            f"Free memory on device: {_size(chance)} of {_size(chance)} on startup",
            (
                f"KV Cache is allocated. #tokens: {chance.randrange(900000)}, K size: {_size(chance)}, V size: "
                f"{_size(chance)}"
            ),
            f"Memory pool end. avail mem={chance.random() * 20:.2f} GB",
            f"Capture cuda graph begin. This can take up to several minutes. avail mem={chance.random() * 20:.2f} GB",
            f"llm_load_tensors:      CUDA0 buffer size = {chance.random() * 9000:.2f} MiB",
            f"ggml_cuda_init: found 1 CUDA devices, VRAM: {chance.randrange(99999)} MiB",
        )
    )


def _nccl(chance: random.Random) -> str:
    pid = chance.randrange(1, 1 << 22)
    return "\n".join(
        f"node{chance.randrange(4)}:{pid}:{pid + 40} [{chance.randrange(8)}] NCCL INFO {said}"
        for said in (
            "Channel 01/0 : 3[3] -> 4[4] via P2P/CUMEM/read",
            "NCCL_CUMEM_ENABLE set by environment to 0.",
            "Connected all rings, comm 0x55 nRanks 08 allocated 12 MiB of buffers",
            "Setting affinity for GPU 0 to ffffff",
        )
    )


def _pip(chance: random.Random) -> str:
    return (
        f"Collecting memory-profiler==0.{chance.randrange(99)}\n"
        "  Downloading memory_profiler-0.61.0-py3-none-any.whl (31 kB)\n"
        "Requirement already satisfied: psutil in /usr/lib/python3/dist-packages (from memory-profiler) (5.9.8)\n"
        "Installing collected packages: memory-profiler, allocate\nSuccessfully installed memory-profiler-0.61.0"
    )


def _cluster(chance: random.Random) -> str:
    job = chance.randrange(1, 1 << 20)
    return chance.choice(
        (
            (
                f"slurmstepd: error: *** JOB {job} ON node7 CANCELLED AT {_stamp(chance).replace(' ', 'T')} DUE TO "
                "TIME LIMIT ***"
            ),
            (
                f"JobID {job} State COMPLETED ExitCode 0:0 MaxRSS {chance.randrange(1 << 25)}K ReqMem 512G Memory "
                "Efficiency: 41.20%"
            ),
            f"srun: job {job} queued and waiting for resources",
            (
                f"[{_stamp(chance)}] torch.distributed.elastic.agent.server.api: [INFO] [default] worker group "
                "successfully finished."
            ),
            "torch.distributed.elastic.multiprocessing.api: Sending process 4711 closing signal SIGTERM",
            "exit code: 0",
            f"process {job} finished with exit code 0 (memory 3.1 GB)",
            "RuntimeError: DataLoader timed out after 120 seconds",
            "Autoscaler: resources in use: 8.0/8.0 GPU, 120.5GiB/512.00GiB memory, 0.2GiB/16.00GiB object_store_memory",
            f"memory.max 549755813888 memory.current {chance.randrange(1 << 38)} oom 0 oom_kill 0",
        )
    )


MAKERS: tuple[Maker, ...] = (
    _step,
    _step,
    _step,
    _bar,
    _bar,
    _warning,
    _traceback,
    _document,
    _code,
    _table,
    _engine,
    _engine,
    _nccl,
    _pip,
    _cluster,
)
