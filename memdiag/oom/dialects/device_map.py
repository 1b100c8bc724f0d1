"""Transformers: ``device_map`` found too little memory on the devices for a model, and would move layers elsewhere.

Accelerate fills the devices first, then the host, then the disk. Most quantized layers run on a device only, so loading
stops (transformers/quantizers). Without a folder for the disk, loading stops as well (accelerate/big_modeling.py).
"""

# ruff: noqa: RUF001 - Chinese has full-width signs

from __future__ import annotations

from collections.abc import Iterator

from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import Texts, phrase_of

FORMATS = ("device_map",)
ANCHORS = ("dispatchedonthecpu", "hadweightsoffloadedtothedisk")
WORDS = ("dispatched on", "offloaded to the disk")
EXAMPLES = (
    (
        "device_map",
        (
            "ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit "
            "the quantized model."
        ),
    ),
    (
        "device_map",
        (
            "ValueError: The current `device_map` had weights offloaded to the disk. Please provide an "
            "`offload_folder` for them."
        ),
    ),
)
TEXTS: Texts = {
    "why.quantized": {
        "en": "The quantized model does not fit into the free memory of the devices, "
        "and its layers cannot run elsewhere.",
        "zh": "量化模型放不进设备的空闲内存，而它的层不能在其他地方运行。",
    },
    "why.disk": {
        "en": "The weights fit neither into the free memory of the devices nor into that of the host.",
        "zh": "权重既放不进设备的空闲内存，也放不进主机的空闲内存。",
    },
    "one": {
        "en": "Load the whole model on one device, if it fits there",
        "zh": "如果放得下，把整个模型加载到一个设备上",
    },
    "one.when": {
        "en": "the weights are smaller than the free memory: device_map may reserve room for layers in more bits",
        "zh": "权重小于空闲内存：device_map 可能按更多位数的层预留空间",
    },
    "one.caveat": {"en": "memory may run out while the model loads", "zh": "加载时内存可能不足"},
    "host": {"en": "Keep the layers that do not fit on the host, in 32 bits", "zh": "把放不下的层以 32 位留在主机上"},
    "host.when": {
        "en": "bitsandbytes in 8 bits, with a device_map of your own",
        "zh": "8 位 bitsandbytes，并给出 device_map",
    },
    "host.caveat": {"en": "these layers run slowly, and need host memory", "zh": "这些层很慢，并占用主机内存"},
    "folder": {"en": "Give a folder for the weights that do not fit", "zh": "为放不下的权重指定文件夹"},
    "folder.when": {
        "en": "inference; each step reads these weights from the disk",
        "zh": "推理；每一步都要从磁盘读取这些权重",
    },
}

_ONE = LazyFix("one", "code", 'from_pretrained(name, device_map={"": 0})', caveat="one.caveat", texts=TEXTS)
_HOST = LazyFix(
    "host",
    "code",
    "BitsAndBytesConfig(load_in_8bit=True, llm_int8_enable_fp32_cpu_offload=True)",
    caveat="host.caveat",
    texts=TEXTS,
)
_BITS = LazyFix("oom_shared.bits", "code", "BitsAndBytesConfig(load_in_4bit=True)", {"program": "Transformers"})
_FOLDER = LazyFix("folder", "code", 'from_pretrained(name, device_map="auto", offload_folder="offload")', texts=TEXTS)
_WHO = LazyFix("oom_shared.who", "code", "nvidia-smi")

_QUANTIZED = pattern(r"Some modules are dispatched on the CPU or the disk\.?")
_DISK = pattern(r"The current [`'\"]?device_map[`'\"]? had weights offloaded to the disk\.?")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for form, why, fixes in (
        (_QUANTIZED, phrase_of(TEXTS, "why.quantized"), (_WHO, _ONE, _BITS, _HOST)),
        (_DISK, phrase_of(TEXTS, "why.disk"), (_WHO, _BITS, _FOLDER)),
    ):
        for match in form.finditer(text.text):
            if not text.is_code(match.start()):
                judgement = Judgement("capacity", "medium", ("other_process",), (why,))
                yield Found(match.start(), match.end(), "device_map", "pytorch", "", {}, judgement, fixes)
