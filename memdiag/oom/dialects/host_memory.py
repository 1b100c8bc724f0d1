"""Remedies for memory of the host, which its dialects share."""

from __future__ import annotations

import re

from memdiag.findings import Fix

FEWER_WORKERS = Fix(
    "Run fewer loader workers, each with fewer batches in flight",
    "code",
    "DataLoader(..., num_workers=2, prefetch_factor=2, persistent_workers=False)",
    "torch.utils.data",
    "loading may become the bottleneck; each worker holds its own copy of what the dataset keeps in Python objects",
)
SHARE_DATASET = Fix(
    "Keep large read-only data in one array that all workers map, not in Python lists",
    "code",
    'data = numpy.load("data.npy", mmap_mode="r")',
    "datasets that are held in memory",
    "Python objects are copied page by page into every worker, since counting references writes to them",
)
SHM = Fix(
    "Give the container more shared memory",
    "flag",
    "docker run --shm-size=16g ...  # or --ipc=host; Kubernetes: an emptyDir with medium Memory on /dev/shm",
    "containers: Docker's default is 64 MiB",
    "it counts as memory of the container: the limit of the cgroup must have room for it",
)
SHARING_FILES = Fix(
    "Pass tensors between processes by file instead of by descriptor",
    "code",
    'torch.multiprocessing.set_sharing_strategy("file_system")',
    "when descriptors or mappings run out, not memory",
    "files in /dev/shm stay behind when a process is killed",
)
ONE_TENSOR = Fix(
    "Ask first whether this one piece is meant to be that large: its shape, its type, its batch",
    "code",
    "print(tensor.shape, tensor.dtype)",
    "the line of the traceback that asked for it",
    "a product of two large dimensions, a batch joined by mistake, float64 instead of float32",
)
LOAD_MAPPED = Fix(
    "Load files without a second copy in memory",
    "code",
    'torch.load(path, map_location="cpu", mmap=True)',
    "torch >= 2.1, where it fails while weights are loaded",
    "Hugging Face: from_pretrained(…, low_cpu_mem_usage=True)",
)
PAGE_FILE = Fix(
    "Enlarge the paging file: Windows refuses memory that it could not back, used or not",
    "flag",
    "SystemPropertiesPerformance.exe",
    "Windows: Advanced, Virtual memory, Change; many loader workers that import torch reserve gigabytes each",
    "it takes that space on the disk",
)
WATCH = Fix(
    "Watch the host's memory while it runs, to see whether it grows step by step",
    "flag",
    "while sleep 5; do date; free -m | sed -n 2,3p; ps -eo pid,rss,comm --sort=-rss | head -4; done",
    "Linux",
    "a steady growth is a leak (lists of losses, caches), which more memory only delays",
)
FEWER_JOBS = Fix(
    "Compile fewer files at once: each takes several GiB",
    "env",
    "MAX_JOBS=2 pip install --no-build-isolation ...",
    "extensions of PyTorch; CMake: cmake --build . -j 2",
    "takes longer",
)
_LARGEST = Fix(
    "See which processes hold the memory: the kernel ends the largest, which need not be the one that grew",
    "flag",
    "ps aux --sort=-rss | head",
    "Linux; the table of tasks above the kill in dmesg has the moment itself",
    "",
)
_HEAP = Fix(
    "Limit the heap of Java to what the host can spare", "flag", "java -Xmx4g ...", "Java; elsewhere JAVA_TOOL_OPTIONS=-Xmx4g",
    "Java itself takes some hundred MiB beyond its heap",
)  # fmt: skip
_NODE_HEAP = Fix(
    "Limit the heap of Node.js, so that it collects garbage earlier", "env", "export NODE_OPTIONS=--max-old-space-size=4096", "Node.js",
    "the program ends with an error of its own if that is not enough",
)  # fmt: skip
_MODEL = Fix(
    "Use a smaller quantisation of the model, a shorter context, or keep more layers on the device", "flag",
    "-m model-Q4_K_M.gguf -c 4096 -ngl 99", "llama.cpp; Ollama: a smaller tag, OLLAMA_CONTEXT_LENGTH, num_gpu",
    "it costs a little accuracy",
)  # fmt: skip

# Names of processes as the kernel prints them (15 characters at most), and what makes that program need less.
_BY_NAME = (
    (r"pt_data_worker|python|pt_main|ipykernel|jupyter|torchrun|accelerate|deepspeed", (FEWER_WORKERS, SHARE_DATASET)),
    (r"cc1|cc1plus|c\+\+|g\+\+|gcc|clang|nvcc|cicc|ptxas|cudafe|ld|ld\.\w+|lld|hipcc|rustc|ninja|bisheng|ccec|icpx", (FEWER_JOBS,)),
    (r"java|openjdk", (_HEAP,)),
    (r"node|nodejs|npm|next-server|webpack", (_NODE_HEAP,)),
    (r"llama|ollama|whisper-|koboldcpp", (_MODEL,)),
)


def of_victim(name: str) -> tuple[Fix, ...]:
    """Returns what helps against the memory of the process that was ended, by its name; loaders have no part in other programs."""
    plain = name.strip().lower()
    for names, fixes in _BY_NAME:
        if re.match(rf"(?:{names})(?![a-z])", plain):
            return (*fixes, WATCH)
    return (_LARGEST, WATCH) if plain else (FEWER_WORKERS, SHARE_DATASET, WATCH)


def slurm_memory(used_bytes: int | None = None, limit_bytes: int | None = None) -> Fix:
    """Returns the line that asks SLURM for more memory: a quarter above what was used, or twice the limit, in whole GiB."""
    wanted = used_bytes * 5 // 4 if used_bytes else limit_bytes * 2 if limit_bytes else None
    if wanted is None:
        return Fix(
            "Ask for more memory for the job, after looking at what it took",
            "flag",
            "sacct -j JOBID --format=JobID,ReqMem,MaxRSS,State  # then: sbatch --mem=<MaxRSS and a quarter more>",
            "SLURM",
            "MaxRSS is sampled: a short peak may be missing in it",
        )
    gib = -(-wanted // (1 << 30))
    basis = "a quarter above what was in use when it was killed" if used_bytes else "twice the limit"
    return Fix("Ask for more memory for the job", "flag", f"sbatch --mem={gib}G ...", "SLURM", f"{basis}; it may have wanted more")
