"""bitsandbytes: its check of CUDA calls prints the error and the line of its own source, and ends the process.

``pythonInterface.c`` (later ``.cpp``) allocates managed memory for a paged optimizer, on the host and the device. ``ops.cu`` starts
kernels, and may report the error of an earlier call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.findings import Fix
from memdiag.oom.model import Found, Judgement
from memdiag.oom.squeezed import Squeezed, pattern

FORMATS = ("bitsandbytes",)
ANCHORS = ("erroroutofmemoryatline",)
EXAMPLES = (
    ("bitsandbytes", "Error out of memory at line 412 in file /build/bitsandbytes/csrc/pythonInterface.c"),
    ("bitsandbytes", "Error out of memory at line 97 in file D:\\build\\bitsandbytes\\csrc\\ops.cu"),
)

_HEAD = pattern(r"Error out of memory at line \d{1,6} in file (?P<file>[\w./\\:+-]{1,200}?\.(?:cpp|cuh|cu|c|hip))")
_MANAGED = re.compile(r"pythonInterface", re.IGNORECASE)

_NOT_PAGED = Fix(
    "Use the 8-bit optimizer that is not paged: the failed call allocates managed memory for paged optimizer state",
    "code",
    'TrainingArguments(optim="adamw_bnb_8bit")',
    "Transformers, where optim is a paged optimizer; elsewhere bitsandbytes.optim.AdamW8bit",
    "its state then takes device memory: 2 bytes for each trained parameter",
)
_WHO = Fix(
    "See what is free on every visible device",
    "flag",
    "nvidia-smi",
    "NVIDIA; managed memory needs a context on each visible device",
    "another process on one of them is enough to fail",
)
_SMALLER = Fix(
    "Use a smaller batch or shorter sequences", "code", "per_device_train_batch_size=1, gradient_accumulation_steps=16",
    "training; gradient checkpointing saves more", "a step takes more passes",
)  # fmt: skip
_BITS = Fix(
    "Load the weights in 4 bits", "code", "quantization_config=BitsAndBytesConfig(load_in_4bit=True)", "Transformers", "a little accuracy"
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _HEAD.finditer(text.text):
        if text.is_code(match.start()):
            continue
        if _MANAGED.search(match["file"]):
            reasons = (
                "bitsandbytes could not allocate managed memory for a paged optimizer, which lies on the host and the device.",
                "No size is printed, nor which of the two was full.",
            )
            judgement = Judgement("unknown", "low", ("capacity", "host", "other_process"), reasons)
            fixes: tuple[Fix, ...] = (_NOT_PAGED, _WHO, _SMALLER)
        else:
            why = ("bitsandbytes ran out of memory on the device; neither a size nor what is free is printed.",)
            judgement = Judgement("capacity", "low", ("other_process", "unknown"), why)
            fixes = (_SMALLER, _BITS, _WHO)
        yield Found(match.start(), match.end(), "bitsandbytes", "bitsandbytes", "cuda", {}, judgement, fixes)
