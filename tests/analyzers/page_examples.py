"""The example findings in docs/findings/MD….md. Run this file to update their reports in the pages.

Each example is a small trace, or a recorded snapshot of tests/goldens, which an analyzer reads like any other.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from memdiag.analyzers import (
    buckets,
    communication,
    intermediates,
    leaks,
    leftovers,
    lifetimes,
    peak,
    quality,
    regrown,
    settings,
    streams,
)
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.context import Context
from memdiag.render.analyze import full as terminal
from memdiag.results.finding import Finding
from memdiag.sources import load
from memdiag.trace.layout import Layout
from memdiag.trace.stacks import Frame
from tests import training as made_by_hand
from tests.analyzers import host_examples
from tests.analyzers.heaps import Heap

HERE = Path(__file__).parent
GOLDENS, PAGES = HERE.parent / "goldens", HERE.parents[1] / "docs" / "findings"
MIB = 1 << 20


class Program(Heap):
    """A heap with call sites in the notation of a report: ``model.py:31 forward``, or several, innermost first.

    ``named`` replaces names that a test uses.
    """

    def __init__(self, named: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.named = named or {}

    def _add(self, action, addr, size, stream, where):
        places = [self.named.get(place, place) for place in ([where] if isinstance(where, str) else where)]
        frames = tuple(
            Frame(file, int(line), name) for file, line, name in (re.split("[: ]", place) for place in places if place)
        )
        self.entries.append((action, addr, size, stream, frames))
        self.clock += 1
        self.times.append(self.clock)
        return len(self.entries) - 1


def _of(name):
    """Returns the functions of the analyzer's test that build the example program."""
    return import_module(f"tests.analyzers.test_{name}")


def _only(findings, code) -> Finding:
    (found,) = [finding for finding in findings if finding.code == code]
    return found


def _kept_passes():
    return _of("kept_passes").found(_of("kept_passes").trained(count=6))


def _gathered_list():
    heap = Program()
    heap.segment(0, 2000 * MIB)
    fill = ["metrics.py:14 gather_logits", "distributed_c10d.py:3200 all_gather", "train.py:61 evaluate"]
    for rank in range(8):
        heap.alloc(rank * 64, 64 * MIB, where=fill)
    heap.alloc(600, 512 * MIB, where=["metrics.py:16 gather_logits", "train.py:61 evaluate"])
    for rank in range(8):
        heap.free(rank * 64, 64 * MIB)
    return communication.analyze(heap.trace(), Context())


def _states():
    heap = Program()
    for i in range(64):
        heap.segment(i * 100, 12 * MIB, where="adamw.py:140 _init_group")
        heap.alloc(i * 100, 11 * MIB, where="adamw.py:140 _init_group")
    heap.segment(90_000, 20 * MIB, where="model.py:31 forward")
    heap.alloc(90_000, 20 * MIB, where="model.py:31 forward")
    return build_report(_of("scattered").kept(heap.trace())).findings


def _chain():
    heap = Program()
    heap.segment(0, 4000 * MIB)
    for i in range(6):
        heap.alloc(i * 100, 64 * MIB, where=[f"softmax.py:{12 + i} forward", "model.py:31 forward"])
        if i:
            heap.free((i - 1) * 100, 64 * MIB)
    return intermediates.analyze(heap.trace(), Context())


def _leftovers():
    heap = Program()
    load_, step = ["load.py:22 to_bfloat16", "train.py:15 main"], ["model.py:31 forward", "train.py:40 step"]
    heap.segment(0, 400 * MIB, where=load_)
    heap.segment(500, 400 * MIB, where=load_)
    heap.alloc(0, 400 * MIB, where=load_)
    heap.alloc(500, 300 * MIB, where=load_)
    heap.alloc(800, 100 * MIB, where=load_)
    heap.free(0, 400 * MIB, where=load_)
    heap.free(500, 300 * MIB, where=load_)
    heap.segment(2000, 500 * MIB, where=step)
    heap.alloc(2000, 500 * MIB, where=step)
    return leftovers.analyze(heap.trace(), Context())


def _regrown():
    heap = Program()
    append = ["cache.py:31 append", "generate.py:12 decode"]
    heap.segment(0, 2100 * MIB, where="generate.py:12 decode")
    for k, size in enumerate(range(100, 140, 2)):
        heap.alloc(1000 * (k % 2), size * MIB, where=append)
        if k:
            heap.free(1000 * ((k + 1) % 2), (size - 2) * MIB, where=append)
    return regrown.analyze(heap.trace(), Context())


def _divisions():
    heap = Program()
    for i in range(4):
        heap.segment(i * 200, 96 * MIB)
        heap.alloc(i * 200, 65 * MIB, where="model.py:31 forward")
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "roundup_power2_divisions:2,max_split_size_mb:200"}
    return build_report(heap.trace(settings=settings, layout=Layout(divisions=(2,) * 16)), replay=False).findings


def _tails():
    heap = Program()
    for i in range(40):
        heap.segment(i * 100, 32 * MIB)
        heap.alloc(i * 100, 30 * MIB, where="linear.py:103 __init__")
    return build_report(heap.trace(backend="npu"), replay=False).findings


def _late():
    heap = Program()
    heap.segment(0, 100 * MIB)
    heap.alloc(0, 100 * MIB, where="prefetch.py:18 next_batch")
    heap.free(0, 100 * MIB, pending=True)
    heap.complete(0, 100 * MIB)
    heap.oom(90 * MIB, where="model.py:31 forward")
    return streams.analyze(heap.trace(), Context())


def _golden(name):
    """Returns the findings of a recorded snapshot, including replays."""
    return build_report(load(GOLDENS / name / "snapshot.pickle")).findings


def _training(**options):
    """Runs three steps of a small model that fill the device."""
    training = _of("peak")
    return peak.analyze(training.trained(**options).trace(capacity_bytes=made_by_hand.SEGMENT), Context())


def _optimizer_temporaries():
    training = _of("peak")
    program = training.trained(steps=2, scale=0.25)
    program.now += 1
    program.phase = "optimizer"
    for _ in range(4):
        program.alloc(program.size * 3, made_by_hand.STEP, "temporary")
    program.fail(1 << 41, made_by_hand.STEP)
    return peak.analyze(program.trace(), Context())


def _previous_step():
    training = _of("lifetimes")
    program = training.KeepsLogits(size=16 * MIB)
    program.initialise()
    for _ in range(4):
        program.step()
    return lifetimes.analyze(program.trace(), Context())


def _old_gradients():
    training = _of("lifetimes")
    program = training.PeaksInForward(size=16 * MIB)
    program.initialise()
    for _ in range(4):
        program.step(zero_first=True)
    return lifetimes.analyze(program.trace(), Context())


def _growing(steps):
    training = _of("leaks")
    return leaks.analyze(training.trained(steps, leak=128 * MIB).trace(), Context())


def _other_stream():
    heap = Program()
    for i in range(4):
        heap.segment(i * 100, 44 * MIB, stream=9)
        heap.alloc(i * 100, 20 * MIB, stream=9, where="prefetch.py:18 next_batch")
        heap.alloc(i * 100 + 20, 24 * MIB, stream=9, where="prefetch.py:18 next_batch")
    for i in range(4):
        heap.free(i * 100, 20 * MIB, stream=9)
    heap.segment(2000, 30 * MIB)
    heap.alloc(2000, 30 * MIB, where="model.py:31 forward")
    return build_report(heap.trace(), replay=False).findings


def _too_little():
    heap = Program()
    for i in range(2):
        heap.segment(i * 100, 40 * MIB, where="model.py:31 forward")
        heap.alloc(i * 100, 30 * MIB, where="model.py:31 forward")
        heap.alloc(i * 100 + 30, 10 * MIB, where="model.py:31 forward")
    for i in range(2):
        heap.free(i * 100, 30 * MIB)
    heap.oom(500 * MIB, device_free=MIB, where="model.py:36 forward")
    return build_report(heap.trace(capacity_bytes=160 * MIB), replay=False).findings


def _empty_cache():
    heap = Program()
    for i in range(4):
        for k in range(3):
            at = i * 1000 + k * 200
            heap.segment(at, 100 * MIB, where="model.py:31 forward")
            heap.alloc(at, 100 * MIB, where="model.py:31 forward")
            heap.free(at, 100 * MIB)
        for k in range(3):
            heap.release(i * 1000 + k * 200, 100 * MIB, where=["memory.py:222 empty_cache", "train.py:61 step"])
    return build_report(heap.trace(), replay=False).findings


def _norms():
    heap = Program({"forward": "norm.py:12 forward", "norm": "model.py:31 block", "linear": "model.py:33 block"})
    chains = _of("kept_chains")
    return chains.found(chains.layers(heap))


def _buckets():
    heap = Program()
    heap.segment(0, 4000 * MIB)
    for i in range(4):
        heap.alloc(
            i * 200, 100 * MIB, where=["torch/nn/parallel/distributed.py:1240 _ddp_init_helper", "train.py:30 main"]
        )
    heap.alloc(2000, 1000 * MIB, where="model.py:31 forward")
    return buckets.analyze(heap.trace(), Context())


def _set(text):
    """Returns the findings on the allocator settings of a small program."""
    heap = Program()
    heap.segment(0, 20 * MIB)
    heap.alloc(0, 5 * MIB, where="model.py:31 forward")
    heap.segment(100, 64 * MIB, expandable=text.startswith("expandable"))
    heap.alloc(100, 64 * MIB, where="model.py:31 forward")
    layout = Layout(max_split=512 * MIB if "max_split" in text else None)
    trace = heap.trace(settings={"PYTORCH_CUDA_ALLOC_CONF": text}, layout=layout)
    return settings.analyze(trace, Context())


def _recorded(*, late=False, stacks=True, contradictions=0):
    """Returns the findings on the quality of a recording."""
    heap = Program()
    heap.segment(400, 120 * MIB)
    heap.alloc(400, 100 * MIB, where="model.py:31 forward")
    for _ in range(120):
        heap.alloc(500, MIB, where="model.py:31 forward" if stacks else "")
        heap.free(500, MIB)
    if late:
        heap.free(1000, 300 * MIB)
        heap.release(1000, 300 * MIB)
    for _ in range(contradictions):
        heap.free(700, MIB)
    return quality.analyze(heap.trace(), Context())


EXAMPLES: dict[str, Callable[[], object]] = {
    "MD101": lambda: _training(scale=4.0),
    "MD102": lambda: _training(scale=0.25),
    "MD103": lambda: _golden("cuda-2.13.0-leak"),
    "MD104": _optimizer_temporaries,
    "MD105": lambda: build_report(load(HERE.parents[1] / "examples" / "gpt-train.pickle"), replay=False).findings,
    "MD111": _previous_step,
    "MD112": _old_gradients,
    "MD113": lambda: build_report(load(HERE.parents[1] / "examples" / "gpt-train.pickle"), replay=False).findings,
    "MD124": _buckets,
    "MD126": lambda: build_report(load(HERE.parents[1] / "examples" / "gpt-train.pickle")).findings,
    "MD130": _norms,
    "MD141": lambda: _of("communicators").found(),
    "MD142": lambda: _of("private_pools").found(),
    "MD201": lambda: _golden("cuda-2.13.0-oom"),
    "MD202": lambda: _golden("cuda-2.13.0-pinned"),
    "MD204": _other_stream,
    "MD205": lambda: _golden("cuda-2.13.0-retries"),
    "MD206": _too_little,
    "MD208": lambda: _golden("cuda-2.13.0-max-split"),
    "MD301": lambda: _golden("cuda-2.13.0-leak"),
    "MD302": lambda: _growing(3),
    "MD401": lambda: _golden("cuda-2.13.0-retries"),
    "MD402": _empty_cache,
    "MD403": lambda: _golden("npu-2.13.0-train"),
    "MD106": _kept_passes,
    "MD121": _gathered_list,
    "MD122": _states,
    "MD123": _chain,
    "MD125": _leftovers,
    "MD127": lambda: _of("loaded_twice").found([32, 64, 96]),
    "MD128": _regrown,
    "MD303": lambda: _of("residue").found(_of("residue").turns([411, 1160, 2500], heap=Program())),
    "MD129": lambda: _of("gathered").found([500]),
    "MD203": _divisions,
    "MD207": _tails,
    "MD601": lambda: _set("max_split_size_mb:512"),
    "MD602": lambda: _set("expandeable_segments:True"),
    "MD603": lambda: _set("expandable_segments:True,max_split_size_mb:512"),
    "MD604": lambda: _set("backend:cudaMallocAsync"),
    "MD951": lambda: _golden("cuda-2.13.0-no-trace"),
    "MD952": lambda: _recorded(late=True),
    "MD953": lambda: _recorded(stacks=False),
    "MD954": lambda: _recorded(contradictions=10),
    "MD955": lambda: _of("scratch").found(),
    "MD501": lambda: streams.analyze(load(GOLDENS / "cuda-2.13.0-streams" / "snapshot.pickle"), Context()),
    "MD502": _late,
    **host_examples.EXAMPLES,
}


# Arguments of ``memdiag conf``, by the code of the finding that they cause.
CONF = {
    "MD651": ["max_split_size:128"],
    "MD652": ["garbage_collection_threshold:80"],
    "MD653": ["max_split_size_mb:128MB"],
    "MD654": ["expandable_segments:True,max_split_size_mb:128", "--backend", "npu"],
    "MD655": ["segment_size_mb:20", "--backend", "npu"],
    "MD656": ["garbage_collection_threshold:0.8"],
    "MD657": ["expandable_segments:true"],
    "MD658": ["expandable_segments:True", "--with", "sleep-mode"],
}


def _of_settings(code: str) -> str:
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "MEMDIAG_LANG": "en"}
    command = [sys.executable, "-m", "memdiag", "conf", *CONF[code]]
    return subprocess.run(command, env=env, capture_output=True, encoding="utf-8", check=False).stdout


def _of_trace(code: str) -> str:
    finding = _only(EXAMPLES[code](), code)
    report = build_report(load(GOLDENS / "cuda-2.13.0-empty" / "snapshot.pickle"))
    return terminal.render(replace(report, findings=(finding,)))


def shown(code: str) -> str:
    """Returns the finding as printed by ``memdiag analyze`` or ``memdiag conf``, 80 columns wide."""
    lines = (_of_settings(code) if code in CONF else _of_trace(code)).split("\n")
    first = next(number for number, line in enumerate(lines) if line.startswith(f"  {code}  "))
    own = "\n".join(line.rstrip() for line in lines[first : lines.index("", first)])
    return textwrap.dedent(re.sub(r"/\S*/([a-z-]+\.pickle)", r"\1", own))


def block(page: str) -> re.Match[str] | None:
    """Returns the match of the first output block in a page, with its text as group 1."""
    return re.search(r"^```text\n(MD\d{3}  .*?)\n```$", page, re.MULTILINE | re.DOTALL)


def main(codes: list[str]) -> None:
    """Writes the reports into the pages that have an output block."""
    for code in codes or (*EXAMPLES, *CONF):
        path = PAGES / f"{code}.md"
        page = path.read_text(encoding="utf-8")
        found = block(page)
        if found is None:
            print(shown(code), end="\n\n")
        else:
            path.write_text(page[: found.start(1)] + shown(code) + page[found.end(1) :], encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
