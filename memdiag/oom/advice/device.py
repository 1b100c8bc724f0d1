"""Where the device itself is the matter: its free memory lies in pieces (MD701), or there is too little of it (MD702)."""

from __future__ import annotations

from dataclasses import replace

from memdiag.findings import Evidence, Finding, Fix, Saving
from memdiag.oom.advice.case import Case
from memdiag.oom.advice.graphs import less_graphs
from memdiag.oom.advice.serving import serving
from memdiag.oom.advice.systems import expandable, max_split, newer, present, recording, snapshot, system
from memdiag.oom.advice.training import training
from memdiag.oom.arithmetic import Numbers
from memdiag.units import GIB, MIB, format_bytes

_POOLS_FROM = GIB  # MindSpeed's own rule of thumb: consider its pools where more than this is reserved but not allocated
_HCCL = 400 * MIB  # one communicator: 2 x HCCL_BUFFSIZE, 200 MB by default
_POOL_MATTERS = 0.03  # of the card
_WAITING = 256 * MIB
_CONTEXT = (128 * MIB, GIB)  # what a process takes on a card that it does not work on
_WHOLE_PROGRAMS = frozenset({"xla_tpu"})  # their "requested" is all that a compiled program needs, not one request

_KEPT = frozenset({"load", "checkpoint", "optimizer", "shard"})  # stages at which what stays for the whole run is made

_POOLS_CAVEAT = (
    "needs expandable_segments:False, without adaptive recomputation, smart swap and fused rotary embedding; it takes new memory rather "
    "than cutting up what is cached, so HCCL may run out instead: set the memory fraction as well"
)


def fragmentation(case: Case) -> Finding:
    """Returns MD701."""
    numbers = case.numbers
    slack, requested = numbers.slack or 0, numbers.requested or 0
    asleep = numbers.oversubscribed and numbers.pool > 0
    fixes = present(
        _cache_before_waking(case) if asleep else None,
        None if asleep else expandable(case) or _really_on(case),
        *_lifetime_pools(case)[:1],
        max_split(case),
        *_lifetime_pools(case)[1:],
        newer(case),
        _own_stream(case),
        *(serving(case) or (_steady_sizes(case),)),
        snapshot(case),
    )
    saving = Saving(0, min(slack, requested or slack), slack, "estimated") if slack else None
    piece = format_bytes(requested) if requested else "what was asked for"
    title = f"{format_bytes(slack)} is free in the allocator, but in pieces too small for {piece}"
    if numbers.slack is None:
        whole = f"{format_bytes(numbers.free)} is free, but not {piece}" if numbers.free else f"Memory is free, but not {piece}"
        title = f"{whole} in one piece"
    elif not requested:
        title = f"{format_bytes(slack)} is unused in the allocator; whether it would have been enough is not printed"
    elif slack < requested and numbers.free:
        both = f"{format_bytes(slack)} is free in the allocator and {format_bytes(numbers.free)} outside"
        title = f"{both}, but not {piece} in one piece"
    return Finding(
        "MD701",
        title,
        "critical",
        case.device,
        case.evidence(
            Evidence("reserved but unallocated", numbers.slack, "bytes"),
            Evidence("part of the reserved memory that is unused", _ratio(slack, numbers.reserved), "ratio"),
            _pending(case),
        ),
        fixes,
        saving,
        slack,
    )


def capacity(case: Case) -> Finding:
    """Returns MD702."""
    numbers = case.numbers
    requested = numbers.requested or 0
    alone = numbers.total is not None and requested > numbers.total
    used = numbers.live if numbers.live is not None else numbers.process
    missing = _missing(numbers)
    title = f"{format_bytes(requested)} more does not fit the device" if requested else "The program needs more memory than the device has"
    if alone:
        title = f"One request of {format_bytes(requested)} is larger than the whole device"
        if case.found.dialect in _WHOLE_PROGRAMS:
            title = f"The program needs {format_bytes(requested)}, and the device has {format_bytes(numbers.total)}"
    elif numbers.total is not None and used is not None:
        title = f"{format_bytes(used)} of {format_bytes(numbers.total)} is in use, and {format_bytes(requested)} more does not fit"
    return Finding(
        "MD702",
        title,
        "critical",
        case.device,
        case.evidence(
            Evidence("allocated", numbers.live, "bytes"),
            Evidence("missing, even if all free memory were in one piece", missing, "bytes"),
            Evidence("missing beyond what is free", case.short or None, "bytes"),
            Evidence("reserved but unallocated, all that settings of the allocator could win", numbers.slack, "bytes"),
        ),
        _less(case, alone=alone),
        None,
        missing or requested,
    )


def _ratio(part: int, whole: int | None) -> float | None:
    return round(part / whole, 3) if whole else None


def _pending(case: Case) -> Evidence:
    active, allocated = case.found.fields.get("active_bytes"), case.numbers.allocated
    waiting = active - allocated if isinstance(active, int) and allocated is not None else 0
    return Evidence("freed, but waiting for another stream", waiting if waiting > 0 else None, "bytes")


def _missing(numbers: Numbers) -> int | None:
    """Bytes that no packing could find."""
    used = numbers.live if numbers.live is not None else numbers.process
    if numbers.total is None or numbers.requested is None or numbers.oversubscribed:
        return None
    beyond = (used or 0) + numbers.requested - numbers.total
    return beyond if beyond > 0 else None


def _lifetime_pools(case: Case) -> tuple[Fix, ...]:
    """MindSpeed's pools by lifetime, and the room that HCCL then needs."""
    numbers = case.numbers
    if case.backend != "npu" or case.found.framework != "torch_npu" or (numbers.slack or 0) <= _POOLS_FROM:
        return ()
    title = "In MindSpeed and AscendSpeed: keep long-lived tensors in pools of their own, instead of expandable segments"
    pools = (
        Fix(
            title, "flag", "--memory-fragmentation",
            "MindSpeed 1.0.RC2 (July 2024) to 2.1.0_core_r0.8.0, legacy (not mcore) models; removed in mid 2025: no core_r0.12.1 has it",
            _POOLS_CAVEAT,
        ),
        Fix(title, "env", "export MEMORY_FRAGMENTATION=1", "AscendSpeed and MindSpeed up to 1.0.RC1", _POOLS_CAVEAT),
    )  # fmt: skip
    room = hccl_room(numbers)
    return (*pools, room) if room else pools


def hccl_room(numbers: Numbers) -> Fix | None:
    """Returns the limit under which HCCL keeps what it has, and gets what one more communicator needs; None where that is not sensible."""
    if not numbers.total or numbers.outside is None or numbers.reserved is None:
        return None
    hundredths = (numbers.total - numbers.outside - _HCCL) * 100 // numbers.total
    if not 50 <= hundredths < 100:
        return None
    return Fix(
        f"Keep {format_bytes(numbers.total - numbers.total * hundredths // 100)} out of PyTorch's reach, for HCCL and workspaces", "code",
        f"torch_npu.npu.set_per_process_memory_fraction(0.{hundredths:02d})",
        "torch_npu, where HCCL or an operator runs out of memory after PyTorch was given more freedom",
        f"PyTorch then stops at {format_bytes(numbers.total * hundredths // 100)}: it does not make the program need less",
    )  # fmt: skip


def _own_stream(case: Case) -> Fix | None:
    waiting = _pending(case).value
    if case.backend != "npu" or not isinstance(waiting, int) or waiting < _WAITING:
        return None
    return Fix(
        "Let blocks be used again as soon as the other stream's work is waited for", "env", "export MULTI_STREAM_MEMORY_REUSE=1",
        "torch_npu, where it is set to 0 or 2", "1 is the default",
    )  # fmt: skip


def _cache_before_waking(case: Case) -> Fix:
    return Fix(
        "Give cached memory back before sleeping pools are woken", "code", f"{system(case).module}.empty_cache()",
        "engines with a sleep mode", "expandable segments do not go with most sleep modes",
    )  # fmt: skip


def _really_on(case: Case) -> Fix | None:
    if not case.is_set("expandable_segments") or case.windows:
        return None
    module = system(case).module
    return Fix(
        "Expandable segments are set, by what is printed near the message: see whether they are in force", "code",
        f'print({{segment.get("is_expandable") for segment in {module}.memory_snapshot()}})' if module else "",
        "where the error is caught",
        "{False}: they were set after the device was first used, or the driver cannot; {True}: what is free lies between live tensors",
    )  # fmt: skip


def _steady_sizes(case: Case) -> Fix:
    return Fix(
        "Make what lives long before what lives short, and pad inputs to a few sizes", "code", "",
        "" if case.on_torch else "every backend", "empty_cache() does not help: pieces between live tensors cannot be given back",
    )  # fmt: skip


def _little_to_win(case: Case) -> str:
    """What settings of the allocator could do here, against the hope that they mend it; "" where the message does not tell."""
    slack, short, numbers = case.numbers.slack, case.short, case.numbers
    if slack is None:
        return ""
    if not slack and not numbers.pool:
        return "empty_cache() and allocator settings do not help: nothing lies unused"
    unused = f"{format_bytes(slack)} is unused"
    if numbers.pool:
        unused += f" beside {format_bytes(numbers.pool)} of free blocks in private pools, which only their owners can use"
    if short is None:
        return f"allocator settings would win that at most: {unused}"
    if slack >= short:
        return f"allocator settings would help this request at most, hardly the run: {unused}"
    return f"empty_cache() and allocator settings do not help: only {unused}"


def of_stage(case: Case) -> list[Fix]:
    """Returns what helps where the traceback shows that no step of the model was running, but what stays for good was being made."""
    if not case.on_torch:
        return []
    if case.stage == "checkpoint":
        return [Fix(
            "Read the file into the host's memory, and copy it into the model", "code",
            'model.load_state_dict(torch.load(path, map_location="cpu", mmap=True))',
            "the traceback ends where a file is read; mmap: torch >= 2.1",
            "a file goes back to the device it was saved from, beside the model, unless map_location says otherwise",
        )]  # fmt: skip
    if case.stage == "load":
        return [
            Fix("Load the weights in fewer bits: the traceback ends where they are loaded", "code",
                "model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16)",
                "Transformers; 8 and 4 bits: quantization_config=BitsAndBytesConfig(…)", "a little accuracy"),
            Fix("Spread the weights over all devices", "code", 'model = AutoModelForCausalLM.from_pretrained(name, device_map="auto")',
                "Transformers with accelerate, inference; training: FSDP, or DeepSpeed ZeRO 3", ""),
        ]  # fmt: skip
    if case.stage == "optimizer" and case.backend in {"cuda", "hip"}:
        return [Fix(
            "Keep the optimizer's state in 8 bits: the traceback ends where the first step makes it", "code",
            "optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())",
            "bitsandbytes; Adam keeps two more numbers for each parameter", "Adafactor and SGD keep less as well",
        )]  # fmt: skip
    if case.stage == "optimizer":
        return [Fix(
            "Divide the optimizer's state among devices: the traceback ends where it is made", "code",
            "optimizer = torch.distributed.optim.ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=lr)",
            "several devices; Adam keeps two more numbers for each parameter", "",
        )]  # fmt: skip
    fix = _OF_STAGE.get(case.stage)
    return [fix] if fix else []


_OF_STAGE = {
    "evaluation": Fix(
        "Evaluate without gradients, with a smaller batch: the traceback ends in an evaluation", "code", "with torch.inference_mode():",
        "evaluation, validation, tests", "outputs that are kept belong on the CPU: outputs.append(output.cpu())",
    ),
    "gather": Fix(
        "Move outputs to the host as they come: the evaluation collects them on the device", "code",
        "outputs.append(output.detach().cpu())", "evaluation, validation, tests", "",
    ),
    "generation": Fix(
        "Generate for fewer prompts at a time, and shorter answers", "code", "model.generate(**inputs, max_new_tokens=128)",
        "keys and values are kept for every token of every prompt", "",
    ),
    "shard": Fix(
        "Make the model on the CPU or without memory, and divide it from there", "code", 'with torch.device("meta"):',
        "FSDP2: fully_shard(model), then model.to_empty(device=…); DeepSpeed: with deepspeed.zero.Init():", "load the weights afterwards",
    ),
    "update": Fix(
        "Update the parameters without temporary copies: the traceback ends in the optimizer's step", "code",
        "optimizer = torch.optim.AdamW(model.parameters(), fused=True)", "torch >= 2.0; foreach=False where there is no fused one",
        "foreach=False: steps get slower",
    ),
}  # fmt: skip


def _one_tensor(case: Case, *, alone: bool) -> Fix:
    """Returns what to do about one request that is as large as half of the device: by what the innermost frames compute."""
    caveat = "no setting and no other program's end can make room for it" if alone else ""
    if case.on_torch and case.operation == "attention":
        return Fix(
            "Compute attention without the matrix of all weights: one tensor of that kind asked", "code",
            "torch.nn.functional.scaled_dot_product_attention(q, k, v)", 'Transformers: attn_implementation="sdpa"; it grows with the '
            "square of the length otherwise", caveat,
        )  # fmt: skip
    if case.on_torch and case.operation == "logits":
        return Fix(
            "Compute the loss in pieces: logits take tokens x vocabulary, several times over", "code",
            "model = AutoLigerKernelForCausalLM.from_pretrained(name)", "Transformers with liger-kernel (Trainer: use_liger_kernel=True)",
            caveat,
        )  # fmt: skip
    return Fix(
        "Look at the line that asked: make this one tensor smaller, in chunks or not at all", "code", "",
        "logits of a long sequence, attention weights, a batch that was joined by mistake", caveat,
    )  # fmt: skip


def _contexts(case: Case) -> Fix | None:
    """Returns how to keep other ranks off this device: several processes that hold the same, no more than a context takes."""
    numbers = case.numbers
    small = [size for _pid, size in numbers.strangers if _CONTEXT[0] <= size <= _CONTEXT[1]]
    module = system(case).module
    if len(small) < 2 or max(small) > 1.05 * min(small) or not module or not case.on_torch:
        return None
    room = "with their memory free, this request would have fitted" if case.short and sum(small) >= case.short else ""
    return Fix(
        f"Give each rank its own device: {len(small)} other processes hold {format_bytes(min(small))} each here, as a bare context does",
        "code", f'{module}.set_device(int(os.environ["LOCAL_RANK"]))',
        'before the first tensor is made; files: torch.load(path, map_location="cpu")', room,
    )  # fmt: skip


def _less(case: Case, *, alone: bool) -> tuple[Fix, ...]:
    """Ways to need less, by what they cost."""
    numbers = case.numbers
    fixes: list[Fix | None] = []
    engine = serving(case)
    if engine:
        first = engine[0]
        known = ". ".join(text for text in (first.caveat, _little_to_win(case)) if text)
        return present(replace(first, caveat=known), *engine[1:], *(less_graphs(case) if numbers.pool else ()), snapshot(case))
    large = alone or bool(numbers.total and (numbers.requested or 0) > numbers.total // 2)
    if large and case.stage not in _KEPT:
        fixes.append(_one_tensor(case, alone=alone))
    lead = training(case)
    if lead and not case.stage:
        lead = replace(lead, caveat=". ".join(text[:1].upper() + text[1:] for text in (_little_to_win(case), lead.caveat) if text))
    fixes += [None if alone else _contexts(case), lead, *of_stage(case)]
    if not lead or case.stage:
        batch = "where it fails later as well: weights and optimizer state do not depend on it" if case.stage in _KEPT else ""
        fixes.append(Fix(
            "Use a smaller batch; in training, collect gradients over several", "code", "",
            batch or "training and inference; the first thing to try", _little_to_win(case),
        ))  # fmt: skip
    if numbers.pool and numbers.share(numbers.pool) >= _POOL_MATTERS:
        fixes += less_graphs(case)[:2]
    if case.on_torch:
        if case.backend == "npu" and case.program != "megatron":
            fixes.append(Fix("Recompute activations instead of keeping them", "flag",
                             "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
                             "MindSpeed and Megatron training", "steps take up to a third longer"))  # fmt: skip
        if not lead or case.stage:
            fixes.append(Fix(
                "Recompute activations instead of keeping them", "code",
                "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)", "training", "steps take up to a third longer",
            ))  # fmt: skip
        if not case.program and case.stage not in {"evaluation", "gather"}:
            fixes.append(Fix("Without training: keep nothing for a backward pass", "code", "with torch.inference_mode():", "inference", ""))
        fixes.append(Fix(
            "Share parameters, gradients and optimizer state among devices, or keep some on the host", "code",
            "torch.distributed.fsdp.fully_shard(model)", "torch >= 2.6, more than one device; DeepSpeed: ZeRO 2, 3 or offloading",
            "more communication",
        ))  # fmt: skip
        record = snapshot(case)
        if numbers.total and numbers.total >= GIB and record and record.change.startswith(recording(case)):
            fixes.append(Fix(
                "See what would fit if what is idle moved to the host or to disk, and what the copies cost", "record",
                f"{recording(case)}\nmemdiag simulate --policy offload --max-device-memory {numbers.total // GIB}GiB",
                "training", "moving cannot lower what one moment of the program uses at once",
            ))  # fmt: skip
        fixes.append(record)
    else:
        fixes.append(Fix("Use a smaller model, a narrower number format, or a larger device", "code", "", "every framework", ""))
    return present(*fixes)
