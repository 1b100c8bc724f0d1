"""AWS Neuron, the runtime of Trainium and Inferentia: memory of one core, and host memory for its DMA rings.

One refusal is several lines: the driver's with the bytes ("TDRV:dmem_alloc_internal"), the account of the core
("TDRV:log_dev_mem": total, tensors, …), and the call of the framework with "Allocation Failure".
"""

# ruff: noqa: RUF001 - Chinese has full-width signs

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.oom.dialects.host_memory import WATCH
from memdiag.oom.dialects.parts import number, runs, shown
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import Texts, phrase_of

FORMATS = ("neuron",)
NAMES = {"neuron": "AWS Neuron"}
ANCHORS = (
    "devicememory:",
    "failedtoallocatedevicememory",
    "failedtoallochostmemory",
    "failedtoallocatehostmemory",
    "allocationfailure",
    "onnd",
)
EXAMPLES = (
    (
        "neuron",
        (
            "2033-Jan-02 03:04:05.678901  4711:4711  ERROR  TDRV:dmem_alloc_internal  Failed to alloc DEVICE memory: "
            "67108864\n"
            "2033-Jan-02 03:04:05.678902  4711:4711  ERROR  TDRV:log_dev_mem  Failed to allocate 64.000MB "
            "(usage: tensors) on ND 0:NC 1, current utilization:\n\t* total: 15.750GB\n\t* tensors: 15.500GB"
        ),
    ),
    ("neuron", 'RuntimeError: nrt_tensor_allocate status=4 message="Allocation Failure"'),
)
TEXTS: Texts = {
    "why.size": {
        "en": "{size} did not fit into the memory of one NeuronCore.",
        "zh": "一个 NeuronCore 的内存放不下 {size}。",
    },
    "why.used": {
        "en": "{size} did not fit into the memory of one NeuronCore, which already holds {held}.",
        "zh": "一个 NeuronCore 的内存放不下 {size}，其中已占用 {held}。",
    },
    "why.no-size": {
        "en": "The runtime could not allocate memory of a NeuronCore. The lines before the message show the size.",
        "zh": "运行时无法分配 NeuronCore 的内存。报错之前的行给出大小。",
    },
    "why.host": {
        "en": "The runtime could not allocate contiguous host memory for its transfers (DMA rings): {size}.",
        "zh": "运行时无法为传输（DMA 环）分配连续的主机内存：{size}。",
    },
    "split": {
        "en": "Split the weights over more NeuronCores",
        "zh": "把权重切分到更多 NeuronCore",
    },
    "split.when": {
        "en": "NeuronX Distributed, vLLM: --tensor-parallel-size",
        "zh": "NeuronX Distributed；vLLM：--tensor-parallel-size",
    },
    "split.caveat": {
        "en": "the model is compiled again; the degree must divide the number of attention heads",
        "zh": "模型会重新编译；并行度必须整除注意力头数",
    },
    "smaller": {
        "en": "Compile for a smaller batch or a shorter sequence",
        "zh": "以更小的批次或更短的序列编译",
    },
    "smaller.when": {"en": "the compiled graph has fixed shapes", "zh": "编译后的图形状固定"},
    "others": {"en": "See which processes use the NeuronCores", "zh": "查看哪些进程占用 NeuronCore"},
    "cache": {
        "en": "Free the page cache of the host, then start the program again",
        "zh": "释放主机的页缓存后重新启动程序",
    },
    "cache.when": {
        "en": "a large checkpoint was read shortly before; needs root",
        "zh": "刚读取过大的检查点；需要 root 权限",
    },
}

_PARTS = {
    "device": pattern(r"Failed to alloc(?:ate)? DEVICE memory (?: : {bytes:bytes} | \( {bytes_in:bytes} bytes \) )?"),
    "host": pattern(r"Failed to alloc(?:ate)? HOST memory (?: : {bytes:bytes} | \( {bytes_in:bytes} bytes \) )?"),
    "core": pattern(
        r"Failed to allocate {size:size} \( [^()]{0,60} usage : [\w ]{2,40} \) on ND \d{1,4} : NC {core:int}"
        r" (?: , current utilization : \*? total : {held:size} | .{0,80}? ND \d{1,4} HBM \d{1,3} \|? {table:size} )?"
    ),
    "tensor": pattern(r"Failed to allocate {bytes:bytes} bytes on DEVICE for tensor"),
    "call": pattern(r"nrt_\w{3,40} status = 4 message = \"? Allocation Failure"),
}
_REACH = 1500
_SPLIT = LazyFix("split", "flag", "--tensor-parallel-size 8", texts=TEXTS)
_SMALLER = LazyFix("smaller", "flag", "--max-num-seqs 1 --max-model-len 2048", texts=TEXTS)
_OTHERS = LazyFix("others", "flag", "neuron-ls && neuron-top", texts=TEXTS)
_CACHE = LazyFix("cache", "flag", "sync; echo 1 | sudo tee /proc/sys/vm/drop_caches", texts=TEXTS)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``: one for all lines about a refusal."""
    kinds = {
        (match.start(), match.end()): (kind, match)
        for kind, part in _PARTS.items()
        for match in part.finditer(text.text)
    }
    for group in runs([match for _span, (_kind, match) in sorted(kinds.items())], _REACH):
        named = {kinds[match.span()][0] for match in group}
        yield _found(group[0].start(), group[-1].end(), group, is_host="host" in named and "device" not in named)


def _found(start: int, end: int, group: list[re.Match[str]], *, is_host: bool) -> Found:
    given: Fields = {}
    for match in group:
        given = take(match) | given
    sizes = (number(given, f"{name}_bytes") for name in ("bytes", "bytes_in", "size"))
    requested = next((size for size in sizes if size is not None), None)
    held = next((size for size in (number(given, f"{name}_bytes") for name in ("held", "table")) if size), None)
    fields: Fields = {
        name: value
        for name, value in (
            ("requested_bytes", requested),
            ("allocated_bytes", held),
            ("device_index", given.get("core")),
        )
        if value is not None
    }
    if is_host:
        why = phrase_of(TEXTS, "why.host", size=shown(requested))
        judgement = Judgement("host", "medium", ("limit",), (why,))
        return Found(start, end, "neuron", "neuron", "cpu", fields, judgement, (_CACHE, WATCH))
    why = phrase_of(TEXTS, "why.no-size")
    if requested is not None:
        why = phrase_of(TEXTS, "why.size", size=shown(requested))
        if held is not None:
            why = phrase_of(TEXTS, "why.used", size=shown(requested), held=shown(held))
    judgement = Judgement("capacity", "medium" if held else "low", ("other_process", "unknown"), (why,))
    return Found(start, end, "neuron", "neuron", "neuron", fields, judgement, (_SPLIT, _SMALLER, _OTHERS))
