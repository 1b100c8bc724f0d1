"""Remedies for host memory that several dialects share."""

from __future__ import annotations

import re

from memdiag.results.lazy_fix import LazyFix

FEWER_WORKERS = LazyFix(
    "oom_host.workers", "code", "DataLoader(..., num_workers=2, prefetch_factor=2, persistent_workers=False)"
)
SHARE_DATASET = LazyFix("oom_host.dataset", "code", 'data = numpy.load("data.npy", mmap_mode="r")')
SHM = LazyFix(
    "oom_host.shm",
    "flag",
    "docker run --shm-size=16g ...  # or --ipc=host; Kubernetes: an emptyDir with medium Memory on /dev/shm",
)
ONE_TENSOR = LazyFix("oom_host.tensor", "code", "print(tensor.shape, tensor.dtype)")
LOAD_MAPPED = LazyFix("oom_host.mapped", "code", 'torch.load(path, map_location="cpu", mmap=True)')
PAGE_FILE = LazyFix("oom_host.page-file", "flag", "SystemPropertiesPerformance.exe")
WATCH = LazyFix(
    "oom_host.watch",
    "flag",
    "while sleep 5; do date; free -m | sed -n 2,3p; ps -eo pid,rss,comm --sort=-rss | head -4; done",
)
FEWER_JOBS = LazyFix("oom_host.jobs", "env", "MAX_JOBS=2 pip install --no-build-isolation ...")
LARGEST = LazyFix("oom_host.largest", "flag", "ps aux --sort=-rss | head")
_HEAP = LazyFix("oom_host.heap", "flag", "java -Xmx4g ...")
_NODE_HEAP = LazyFix("oom_host.node-heap", "env", "export NODE_OPTIONS=--max-old-space-size=4096")
_MODEL = LazyFix("oom_host.model", "flag", "-m model-Q4_K_M.gguf -c 4096 -ngl 99")

# Schedulers: their names, and how a job requests {gib} GiB.
_REQUESTS = {
    "slurm": ("Slurm", "sbatch --mem={gib}G ..."),
    "pbs": ("PBS", "qsub -l mem={gib}gb ...  # PBS Pro: -l select=1:mem={gib}gb"),
    "lsf": ("LSF", 'bsub -M {gib}GB -R "rusage[mem={gib}GB]" ...'),
    "sge": ("Grid Engine", "qsub -l h_vmem={gib}G ..."),
    "htcondor": ("HTCondor", "condor_submit request_memory={gib}GB ..."),
}
_ANY_JOB = 64 << 30

# Process names as the kernel prints them (15 characters at most), and remedies for that program.
_BY_NAME = (
    (r"pt_data_worker|python|pt_main|ipykernel|jupyter|torchrun|accelerate|deepspeed", (FEWER_WORKERS, SHARE_DATASET)),
    (
        r"cc1|cc1plus|c\+\+|g\+\+|gcc|clang|nvcc|cicc|ptxas|cudafe|ld|ld\.\w+|lld|hipcc|rustc|ninja|bisheng|ccec|icpx",
        (FEWER_JOBS,),
    ),
    (r"java|openjdk", (_HEAP,)),
    (r"node|nodejs|npm|next-server|webpack", (_NODE_HEAP,)),
    (r"llama|ollama|whisper-|koboldcpp", (_MODEL,)),
)


def of_victim(name: str) -> tuple[LazyFix, ...]:
    """Returns remedies for the memory of the killed process, by its name.

    Loader settings do not apply to other programs.
    """
    plain = name.strip().lower()
    for names, fixes in _BY_NAME:
        if re.match(rf"(?:{names})(?![a-z])", plain):
            return (*fixes, WATCH)
    return (LARGEST, WATCH) if plain else (FEWER_WORKERS, SHARE_DATASET, WATCH)


def slurm_memory(used_bytes: int | None = None, limit_bytes: int | None = None) -> LazyFix:
    """Returns the line that requests more memory from SLURM: a quarter above the usage, or twice the limit, in GiB."""
    if not used_bytes and not limit_bytes:
        return LazyFix(
            "oom_host.slurm.look",
            "flag",
            "sacct -j JOBID --format=JobID,ReqMem,MaxRSS,State  # then: sbatch --mem=<MaxRSS and a quarter more>",
        )
    return job_memory("slurm", used_bytes, limit_bytes)


def job_memory(system: str, used_bytes: int | None = None, limit_bytes: int | None = None) -> LazyFix:
    """Returns the line that requests more memory for a job from a scheduler of ``_REQUESTS``.

    Args:
        system: Name of the scheduler.
        used_bytes: What the job used; None if unknown, or if the scheduler samples it too rarely.
        limit_bytes: What the job might use, or None.
    """
    name, line = _REQUESTS[system]
    wanted = used_bytes * 5 // 4 if used_bytes else limit_bytes * 2 if limit_bytes else _ANY_JOB
    caveat = "oom_host.slurm.any.caveat"
    if used_bytes or limit_bytes:
        caveat = "oom_host.slurm.used.caveat" if used_bytes else "oom_host.slurm.limit.caveat"
    change = line.replace("{gib}", str(-(-wanted // (1 << 30))))
    return LazyFix("oom_host.slurm", "flag", change, {"system": name}, caveat=caveat)
