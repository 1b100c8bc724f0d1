"""bitsandbytes: its check of CUDA calls prints the error and its own source line, and ends the process.

``pythonInterface.c`` (later ``.cpp``) allocates managed memory for a paged optimizer, on the host and the device.
``ops.cu`` starts kernels, and may report the error of an earlier call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase

FORMATS = ("bitsandbytes",)
NAMES = {"bitsandbytes": "bitsandbytes"}
ANCHORS = ("erroroutofmemoryatline",)
EXAMPLES = (
    ("bitsandbytes", "Error out of memory at line 412 in file /build/bitsandbytes/csrc/pythonInterface.c"),
    ("bitsandbytes", "Error out of memory at line 97 in file D:\\build\\bitsandbytes\\csrc\\ops.cu"),
)

_HEAD = pattern(r"Error out of memory at line \d{1,6} in file (?P<file>[\w./\\:+-]{1,200}?\.(?:cpp|cuh|cu|c|hip))")
_MANAGED = re.compile(r"pythonInterface", re.IGNORECASE)

_NOT_PAGED = LazyFix("oom_torch.managed", "code", 'TrainingArguments(optim="adamw_bnb_8bit")')
_WHO = LazyFix("oom_shared.who", "flag", "nvidia-smi", when="oom_torch.visible.when", caveat="oom_torch.visible.caveat")
_SMALLER = LazyFix(
    "remedies.shorter",
    "code",
    "per_device_train_batch_size=1, gradient_accumulation_steps=16",
    when="oom_torch.micro-batch.when",
    caveat="oom_torch.micro-batch.caveat",
)
_BITS = LazyFix(
    "oom_shared.bits", "code", "quantization_config=BitsAndBytesConfig(load_in_4bit=True)", when="oom_torch.bits.when"
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _HEAD.finditer(text.text):
        if text.is_code(match.start()):
            continue
        if _MANAGED.search(match["file"]):
            reasons = (
                phrase("oom_torch.why.managed"),
                phrase("oom_torch.why.managed.which"),
            )
            judgement = Judgement("unknown", "low", ("capacity", "host", "other_process"), reasons)
            fixes: tuple[LazyFix, ...] = (_NOT_PAGED, _WHO, _SMALLER)
        else:
            why = (phrase("oom_torch.why.bitsandbytes"),)
            judgement = Judgement("capacity", "low", ("other_process", "unknown"), why)
            fixes = (_SMALLER, _BITS, _WHO)
        yield Found(match.start(), match.end(), "bitsandbytes", "bitsandbytes", "cuda", {}, judgement, fixes)
