"""The host's memory (MD706), causes that a message leaves open (MD707), and hints in messages that do not help (MD708)."""

from __future__ import annotations

from memdiag.findings import Evidence, Finding, Fix
from memdiag.oom.advice.case import Case
from memdiag.oom.advice.device import of_stage
from memdiag.oom.advice.serving import serving
from memdiag.oom.advice.systems import present, snapshot, system
from memdiag.oom.advice.training import training
from memdiag.units import format_bytes

_HINTS = ("max_split_size_mb", "expandable_segments")
_TOO_LITTLE = 0.02  # of the card: slack that any run has


def host(case: Case) -> Finding:
    """Returns MD706."""
    requested, fields = case.numbers.requested, case.found.fields
    rss = fields.get("anon_rss_bytes")
    title = "The memory of the host ran out" + (f" at a request of {format_bytes(requested)}" if requested else "")
    if "limit" in case.judgement.alternatives and not requested:
        title = "The host's memory ran out, or the share of it that this program may use"
    if case.judgement.confidence == "low":
        title = "Perhaps the memory of the host ran out"
    return Finding(
        "MD706",
        title,
        "critical",
        None,
        case.evidence(
            Evidence("held by the process that was ended", rss if isinstance(rss, int) else None, "bytes"),
            Evidence("in use on the host", case.numbers.allocated, "bytes"),
            Evidence("limit", case.numbers.limit, "bytes"),
        ),
        (
            Fix("Use fewer loader processes, and do not pin", "code", "DataLoader(dataset, num_workers=2, pin_memory=False)",
                "training with a DataLoader", "loading may become the bottleneck; each worker holds a copy of what the data set holds"),
            Fix("Load files without a second copy in memory", "code", 'torch.load(path, map_location="cpu", mmap=True)', "torch >= 2.1",
                "Hugging Face: from_pretrained(…, low_cpu_mem_usage=True)"),
            Fix("Give a container more shared memory", "flag", "--shm-size=16g", "Docker, where /dev/shm ran out", "64 MiB is the default"),
            Fix("Ask the job system for more memory, or start fewer ranks a node", "flag", "--mem=0", "Slurm: all memory of the node", ""),
            Fix("See who uses the memory of the host", "code", "ps aux --sort=-rss | head", "Linux", "dmesg names what was ended"),
        ),
        None,
        requested or 0,
    )  # fmt: skip


def unknown(case: Case) -> Finding:
    """Returns MD707."""
    numbers = case.numbers
    if case.backend == "mps" and case.numbers.limit is not None and not case.numbers.held:
        return _unusable(case)
    if case.judgement.confidence == "high":
        return _no_shortage(case)
    tools = system(case).processes
    contained = "" if case.on_apple else "a container does not see other processes"
    module = system(case).module
    in_hand = None
    if case.on_torch and case.backend in {"cuda", "hip"}:
        in_hand = Fix("Print free and total memory before the line that fails", "code", f"print({module}.mem_get_info())", "PyTorch", "")
    title = "The message does not tell why memory ran out"
    if numbers.free is not None and numbers.requested is not None and numbers.free >= numbers.requested:
        title = f"{format_bytes(numbers.requested)} was refused although {format_bytes(numbers.free)} is free"
    return Finding(
        "MD707",
        title,
        "critical",
        case.device,
        case.evidence(
            Evidence("allocated", numbers.allocated, "bytes"), Evidence("reserved but unallocated", numbers.slack, "bytes")
        ),
        present(
            *serving(case),
            training(case),
            *of_stage(case),
            snapshot(case),
            Fix("Look at the device at the moment of the failure", "code", tools, "", contained)
            if tools else None,
            in_hand,
            Fix("Give memdiag the whole log: lines before the message may tell", "code", "memdiag oom train.log", "every framework", ""),
        ),
        None,
        numbers.requested or 0,
    )  # fmt: skip


def _no_shortage(case: Case) -> Finding:
    """MD707 where a dialect knows that memory is not the matter."""
    look = Fix("Look at the shape or the size that was asked for, where the traceback ends", "code", "", "", "freeing memory cannot help")
    asked = Evidence("asked for", case.numbers.requested, "bytes")
    title = "The size that was asked for is wrong, or something is broken; no memory ran out"
    return Finding("MD707", title, "critical", case.device, (asked,) if asked.value is not None else (),
                   () if case.found.fixes else (look,), None, 0)  # fmt: skip


def _unusable(case: Case) -> Finding:
    """MD707 where the GPU of a Mac refuses everything."""
    numbers = case.numbers
    fixes = (
        Fix(
            "Use the CPU here",
            "code",
            'device = torch.device("cpu")',
            "virtual machines and CI runners without a GPU of their own",
            "slower",
        ),
        Fix(
            "Leave tests that need the GPU to a machine that has one", "code", "", "CI", "torch.backends.mps.is_available() says True here"
        ),
    )
    title = f"{format_bytes(numbers.requested)} was refused with nothing in use: the GPU cannot be used here"
    return Finding("MD707", title, "critical", case.device, case.evidence(Evidence("limit", numbers.limit, "bytes")), fixes, None, 0)


def hint(case: Case) -> Finding | None:
    """Returns MD708 where the message suggests a setting that the numbers rule out; else None."""
    hinted = [key for key in _HINTS if f"hint:{key}" in case.found.marks]
    slack = case.numbers.slack
    if not hinted or slack is None or case.short is None or not case.numbers.total or case.judgement.verdict == "fragmentation":
        return None  # what is not printed cannot rule it out
    needed = max(case.short, 1)
    part = case.numbers.share(slack)
    if slack >= needed and part >= _TOO_LITTLE:
        return None
    what = f"The hint of the message ({' and '.join(hinted)})"
    if slack < needed:
        title = f"{what} does not help: {format_bytes(slack)} is reserved but unallocated, and {format_bytes(needed)} is missing"
    else:
        title = f"{what} hardly helps: only {format_bytes(slack)} ({part:.1%} of the device) is reserved but unallocated"
    evidence = (
        Evidence("reserved but unallocated: the most that the hint could win", slack, "bytes"),
        Evidence("missing beyond what is free", needed, "bytes"),
    )
    return Finding("MD708", title, "info", case.device, evidence, (), None, slack)
