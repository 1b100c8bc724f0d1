"""Warnings of the recorder in English and Chinese.

The recorder runs in the processes of the recorded program, without the rest of memdiag, so it has its own texts.
``memdiag record`` passes its language in the environment.
"""
# ruff: noqa: RUF001 - Chinese has full-width signs

from __future__ import annotations

import os
from typing import Any

VARIABLE = "MEMDIAG_LANG"  # also read by memdiag.text

TEXTS: dict[str, dict[str, str]] = {
    "failed": {
        "en": "a part of the recording failed ({part}: {kind}: {error}); the program continues",
        "zh": "录制部分失败（{part}：{kind}：{error}）；程序继续运行",
    },
    "unwritten.kept": {
        "en": "{path} could not be written: {error}; its earlier version is still there",
        "zh": "无法写入 {path}：{error}；之前写出的版本仍在",
    },
    "unwritten.none": {
        "en": "{path} could not be written: {error}; it has no earlier version",
        "zh": "无法写入 {path}：{error}；之前没有写出过",
    },
    "unwritten.continues": {"en": "{text}, and the program continues", "zh": "{text}；程序继续运行"},
    "profiler.lost": {
        "en": "PyTorch's profiler lost its recording ({error}): from now on, memdiag records without Python stacks",
        "zh": "PyTorch 的性能分析器丢失了其记录（{error}）：memdiag 此后录制时不含 Python 调用栈",
    },
    "profiler.other": {
        "en": "the program runs a profiler of its own: memdiag does not record CPU memory meanwhile",
        "zh": "程序运行自己的性能分析器：在此期间 memdiag 不录制 CPU 内存",
    },
    "allocator.dangerous": {
        "en": "the program uses the allocator {name}, where a snapshot can end the process: memdiag does not record it",
        "zh": "程序使用分配器 {name}，请求快照可能使进程终止：memdiag 不录制它",
    },
    "allocator.no-history": {
        "en": "the program uses the allocator {name}, which keeps no history: memdiag records only its counters",
        "zh": "程序使用分配器 {name}，它不保留历史：memdiag 只录制它的计数器",
    },
    "history.stopped": {
        "en": "the program itself stopped the memory history of {name}; memdiag does not change its settings",
        "zh": "程序自己停止了 {name} 的内存历史；memdiag 不改变程序的设置",
    },
    "history.restarted": {
        "en": "the program itself restarted the memory history of {name}; memdiag does not change its settings",
        "zh": "程序自己重新开始了 {name} 的内存历史；memdiag 不改变程序的设置",
    },
    "wait.values": {
        "en": (
            "no training step ended in {seconds} s, while the program read {count} synthetic values, most of them at "
            "{place}. If a loop waits for a value, add --values auto, which tries --compute small and other values"
        ),
        "zh": (
            "{seconds} 秒内没有训练步结束，程序读取了 {count} 个合成值，其中大多数在 {place}。"
            "如果循环在等待某个值，请加上 --values auto：它会试用 --compute small 和其他值"
        ),
    },
    "wait.weights": {
        "en": (
            "PyTorch has initialized weights on the host for {seconds} s, at {place}. On the simulated device this "
            "takes no time: create the model under torch.device(...) of the device, or on meta"
        ),
        "zh": (
            "PyTorch 已在主机上初始化权重 {seconds} 秒，位于 {place}。在模拟设备上这不费时间："
            "请在该设备的 torch.device(...) 下或在 meta 上创建模型"
        ),
    },
}


def text_of(key: str, **values: Any) -> str:
    """Returns a text in the language of ``MEMDIAG_LANG``, English by default."""
    language = "zh" if os.environ.get(VARIABLE) == "zh" else "en"
    return TEXTS[key][language].format(**values)
