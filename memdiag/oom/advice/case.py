"""One message to advise on: the message, its cause and numbers, and the situation that remedies look at."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.memory_fraction import lower_utilization
from memdiag.diagnosis.remedies import offer, offers
from memdiag.diagnosis.remedies.model import Situation
from memdiag.diagnosis.remedies.systems import NOTHING, SYSTEMS
from memdiag.oom.frameworks import ON_TORCH
from memdiag.oom.model import Found
from memdiag.oom.programs import REINFORCED
from memdiag.results.finding import Evidence, Fix
from memdiag.results.oom import Judgement
from memdiag.sizes.cuda import LARGE_SEGMENT, OWN_SEGMENT, SMALL_SEGMENT
from memdiag.text import phrase

_ALLOCATORS = frozenset({"cuda", "hip", "xpu", "npu", "musa", "mlu"})

# Wordings that are older than a setting. Those not listed, and messages whose version is open, understand all.
_BEFORE_SETTINGS = frozenset({"0.4", "1.4", "npu-1.8"})
_BEFORE_EXPANDABLE = _BEFORE_SETTINGS | {"1.10"}
_WITH_FRACTION = "2.9"  # its variable of the allocator's settings can limit the memory of the process

# How programs that serve are usually started.
_STARTED_AS = {
    "vllm": "vllm serve MODEL …",
    "sglang": "python -m sglang.launch_server …",
    "comfyui": "python main.py …",
    "webui": "python launch.py …",
    "diffusers": "python generate.py",
    "transformers": "python generate.py",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A message with its cause and its numbers."""

    found: Found
    judgement: Judgement
    numbers: Facts

    @property
    def backend(self) -> str:
        """Backend of the message."""
        return self.found.backend

    @property
    def device(self) -> int | None:
        """Index of the device, if printed."""
        index = self.found.fields.get("device_index")
        return index if isinstance(index, int) else None

    @property
    def on_torch(self) -> bool:
        """True if settings and functions of PyTorch apply."""
        return self.found.framework in ON_TORCH

    @property
    def caching(self) -> bool:
        """True if PyTorch's caching allocator printed the message: its driver requests are segments."""
        mine = self.found.framework in {"pytorch", "torch_npu"} and self.backend in _ALLOCATORS
        return mine and "mallocasync" not in self.found.dialect and "workspace" not in self.found.dialect

    @property
    def engine(self) -> str:
        """The serving or generating program ("vllm", "diffusers", …), or "" for any other."""
        own = (
            self.found.framework
            if self.found.framework in {"vllm", "sglang"} and self.program not in REINFORCED
            else ""
        )
        return self._mark("engine") or own

    @property
    def program(self) -> str:
        """The training program ("trainer", "megatron", …), or "" if unknown."""
        return self._mark("program")

    @property
    def sharing(self) -> str:
        """The library that shards the training across devices: "deepspeed", "fsdp" or ""."""
        return self._mark("sharing")

    @property
    def stage(self) -> str:
        """The stage in which it failed (``memdiag.oom.stages``), according to the lines around it, or ""."""
        return self._mark("stage")

    @property
    def operation(self) -> str:
        """Operation of the innermost frames: "attention", "logits", "vae" or ""."""
        return self._mark("operation")

    @property
    def lower_utilization(self) -> str:
        """The ``--gpu-memory-utilization`` of vLLM that leaves room for the failed allocation."""
        now, numbers = self._mark("utilization"), self.numbers
        known = numbers.requested is not None and numbers.free is not None
        missing = max((numbers.requested or 0) - (numbers.free or 0), 0) if known else None
        is_cache = "allocates:cache" in self.found.marks
        return lower_utilization(float(now) if now else None, numbers.total, missing, is_cache=is_cache)

    @property
    def windows(self) -> bool:
        """True if paths of Windows occur near the message."""
        return "os:windows" in self.found.marks

    def is_set(self, key: str) -> bool:
        """Returns whether the message prints an allocator setting as set."""
        return f"set:{key}" in self.found.marks

    @property
    def generation(self) -> str:
        """The first release that prints such messages ("2.1", "npu-1.11"), or "" if unknown."""
        return self._mark("generation")

    @property
    def variable(self) -> str:
        """Environment variable of the allocator's settings: the one that the message names, else the backend's."""
        names = SYSTEMS.get(self.backend, NOTHING)
        if not self.on_torch or not names.variable:
            return ""
        named = sorted(mark.removeprefix("conf-name:") for mark in self.found.marks if mark.startswith("conf-name:"))
        general = "PYTORCH_ALLOC_CONF"
        if named:
            return general if general in named else named[0]
        return general if self.generation == _WITH_FRACTION else names.variable

    @property
    def situation(self) -> Situation:
        """What remedies need to know."""
        return Situation(
            backend=self.backend,
            facts=self.numbers,
            variable=self.variable,
            is_expandable=self.is_set("expandable_segments"),
            has_lifetime_pools=self.is_set("lifetime_pools"),
            has_settings=self.generation not in _BEFORE_SETTINGS,
            has_expandable=self.generation not in _BEFORE_EXPANDABLE,
            on_torch=self.on_torch,
            on_windows=self.windows,
            framework=self.found.framework,
            device=self.device,
            started_as=_STARTED_AS.get(self.engine, "python train.py"),
            reads_fraction=self.generation == _WITH_FRACTION,
        )

    def offer(self, name: str, *, when: str = "", caveat: str = "") -> Fix | None:
        """Returns a remedy by name; see ``remedies.offer``."""
        return offer(name, self.situation, when=when, caveat=caveat)

    def offers(self, *names: str) -> tuple[Fix, ...]:
        """Returns the remedies that apply, in this order."""
        return offers(self.situation, *names)

    def _mark(self, kind: str) -> str:
        return next((mark.partition(":")[2] for mark in sorted(self.found.marks) if mark.startswith(f"{kind}:")), "")

    @property
    def short(self) -> int | None:
        """Missing bytes: requested beyond the free ones, or None if either is not printed."""
        numbers = self.numbers
        if numbers.requested is None or numbers.free is None:
            return None
        return max(numbers.requested - numbers.free, 0)

    def evidence(self, *extra: Evidence) -> tuple[Evidence, ...]:
        """Returns the message's numbers that are relevant for any cause, after the given ones."""
        numbers = self.numbers
        where = _segment_behind(numbers.requested) if self.caching and numbers.requested else ""
        free, total = phrase("oom_device.evidence.free"), phrase("oom_device.evidence.total")
        if self.backend == "cpu":
            free, total = phrase("oom_device.evidence.free.host"), phrase("oom_device.evidence.total.host")
        common = (
            Evidence(phrase("oom_device.evidence.requested"), numbers.requested, "bytes", where),
            Evidence(free, numbers.free, "bytes"),
            Evidence(total, numbers.total, "bytes"),
        )
        known = {item.what for item in extra}
        return (
            *(item for item in extra if item.value is not None),
            *(e for e in common if e.value is not None and e.what not in known),
        )


def _segment_behind(size: int) -> str:
    """Returns which tensors cause a segment request of this size to the driver, in words, or "" if unknown."""
    if size == SMALL_SEGMENT:
        return phrase("oom_device.segment.small")
    if size == LARGE_SEGMENT:
        return phrase("oom_device.segment.large")
    if size > OWN_SEGMENT:
        return phrase("oom_device.segment.rounded")
    return ""
