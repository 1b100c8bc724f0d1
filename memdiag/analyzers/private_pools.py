"""Private pools of CUDA graphs, MemPools and sleep modes: how much each holds, and where the program fills it.

Memory of a private pool serves only its own graph or pool. PyTorch numbers pools: (n, 0) belongs to one CUDA graph, and
(0, n) to ``torch.cuda.MemPool`` or to a handle that several graphs may share. The allocations in a pool show which
program uses it. The texts are in ``messages/private_pools.json``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.captures import Capture, captures
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import moment_name, when
from memdiag.diagnosis.remedies import present
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import joined, phrase
from memdiag.trace.labels import notes_of
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.stacks import Frame, Stacks
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD142": "private pools of CUDA graphs or MemPools hold memory"}

FLOOR = 64 * MIB
SHARE = 0.02  # of reserved memory
GRAPHS_SHARE = 0.15  # of reserved memory: a warning
FREE_SHARE = 0.1
NUM_POOLS = 6
NUM_CAPTURES = 8

_MOST_STACKS = 200  # of a pool, to find the call that they share
# Parts of file names, and the program that allocates from there. The first match counts.
_PROGRAMS = (
    ("torch_memory_saver", "saver"),
    ("device_allocator/cumem", "cumem"),
    ("cudagraph_trees", "trees"),
    ("cuda/graphs.py", "graph"),
    ("cuda_graph", "graph"),
)
_CAPTURE = "capture"  # in the names of functions that capture graphs
_ENGINES = ("/vllm/", "/vllm_ascend/", "/sglang/")
_ENGINE = "/vllm/"  # a MemPool of this engine that holds no graph is that of its sleep mode
_GRAPHS = frozenset({"graph", "trees"})


@dataclass(frozen=True, slots=True)
class Pool:
    """A private pool at the moment of the report.

    Attributes:
        major, minor: Its id.
        reserved_bytes: Memory that it holds.
        active_bytes: Memory of its live tensors, and of those that wait for a stream.
        num_segments: Ranges obtained from the driver.
        kind: Program that uses it, a key of the texts: "graph", "pool", "trees", "saver", "cumem".
        site: The program's own line that all its allocations share, or "" if unknown.
        inner: The innermost call that they share, if it is a library's; "" otherwise.
        text: What the program set as metadata of most of its allocations, or "".
        is_of_engine: Whether an inference engine allocates from it.
    """

    major: int
    minor: int
    reserved_bytes: int
    active_bytes: int
    num_segments: int
    kind: str
    site: str
    inner: str
    text: str
    is_of_engine: bool


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD142 of every device."""
    settings = AllocatorSettings.of(trace)
    for view in context.views(trace):
        captured = captures(view)
        pools = find_pools(view)
        if captured and not pools:  # the peak is in the profile run of an engine, before it captures
            view = replace(view, at=_after_captures(view.device, captured[-1].at), kind="event")
            pools = find_pools(view)
        total = sum(pool.reserved_bytes for pool in pools)
        reserved = int(view.device.usage_at(view.at)["reserved"])
        if total >= max(FLOOR, SHARE * reserved) or any(capture.reserved_bytes for capture in captured):
            yield _finding(view, pools, captured, total, reserved, settings)


def _after_captures(device: DeviceTrace, last: int) -> int:
    """Returns the event at which the private pools have reserved all of their memory, from the last capture on."""
    groups, regions = device.groups, device.regions
    is_private = np.append((groups.pool_major != 0) | (groups.pool_minor != 0), False)
    opened = int(regions.opened_at[is_private[regions.group]].max(initial=last))
    return min(opened, device.num_events - 1)


def find_pools(view: DeviceView) -> list[Pool]:
    """Returns the private pools that hold memory at the moment, those with the most first."""
    device, groups = view.device, view.device.groups
    if not device.has_addresses or not len(groups) or not (groups.pool_major.any() or groups.pool_minor.any()):
        return []
    regions, tensors = device.regions, device.tensors
    ids, number = np.unique(np.stack((groups.pool_major, groups.pool_minor), axis=1), axis=0, return_inverse=True)
    pool_of = np.append(number.reshape(-1), -1)  # the last entry is for "no group"
    held = np.flatnonzero((regions.opened_at <= view.at) & (regions.closed_at > view.at))
    of_region, of_tensor, of_live = (
        pool_of[regions.group[held]],
        pool_of[tensors.group],
        pool_of[tensors.group[view.live]],
    )
    found = []
    for pool in np.unique(of_region[of_region >= 0]).tolist():
        major, minor = (int(part) for part in ids[pool])
        if not major and not minor:
            continue
        own = held[of_region == pool]
        live = view.live[of_live == pool]
        rows = np.flatnonzero((of_tensor == pool) & (tensors.alloc_at <= view.at))
        frames = _shared_frames(view.trace.stacks, tensors.stack[rows])
        whole = np.unique(regions.segment[own][regions.segment[own] >= 0])
        found.append(
            Pool(
                major,
                minor,
                int(regions.size[own].sum()),
                int(tensors.block_bytes[live].sum()),
                len(whole) + int((regions.segment[own] < 0).sum()),
                _kind(view, rows, major),
                *_sites(frames),
                _metadata(view, rows),
                any(part in frame.filename for frame in frames for part in _ENGINES),
            )
        )
    return sorted(found, key=lambda pool: (-pool.reserved_bytes, pool.major, pool.minor))


def _shared_frames(stacks: Stacks, numbers: Array) -> list[Frame]:
    """Returns the calls that all stacks share, outermost first.

    The last one is the function whose lines differ: several lines of it fill the pool. It has the first of them.
    """
    chosen = [stacks[number][::-1] for number in np.unique(numbers[numbers >= 0])[:_MOST_STACKS].tolist()]
    shared: list[Frame] = []
    for level in zip(*chosen, strict=False):
        if len({(frame.filename, frame.name) for frame in level}) > 1:
            break
        shared.append(min(level, key=lambda frame: frame.line))
        if len({frame.line for frame in level}) > 1:
            break
    return shared


def _sites(frames: list[Frame]) -> tuple[str, str]:
    """Returns the program's own line, and the innermost line of a library below it; "" for none.

    The program's own line is that of a function with "capture" in its name, else the innermost one.

    Args:
        frames: Calls, outermost first.
    """
    lines = [frame for frame in frames if frame.is_python]
    mine = [frame for frame in reversed(lines) if frame.is_user]
    own = next((frame for frame in mine if _CAPTURE in frame.name), mine[0] if mine else None)
    inner = lines[-1] if lines and not lines[-1].is_user else None
    return ("" if own is None else own.label), ("" if inner is None else inner.label)


def _kind(view: DeviceView, rows: Array, major: int) -> str:
    """Returns the program that uses a pool, from the files and functions on the stacks of its allocations."""
    stacks = view.trace.stacks
    numbers = view.device.tensors.stack[rows]
    frames = {frame for number in np.unique(numbers[numbers >= 0])[:_MOST_STACKS].tolist() for frame in stacks[number]}
    files = {frame.filename.replace("\\", "/") for frame in frames if frame.is_python}
    for part, kind in _PROGRAMS:
        if any(part in name for name in files):
            return kind
    if major or any(frame.is_python and _CAPTURE in frame.name for frame in frames):
        return "graph"
    return "cumem" if any(_ENGINE in name for name in files) else "pool"


def _metadata(view: DeviceView, rows: Array) -> str:
    """Returns the text that most allocations of a pool have as metadata, or ""."""
    born = view.device.tensors.alloc_at[rows]
    texts = notes_of(view.trace, view.device)[born[born >= 0]]
    texts = texts[texts >= 0]
    if not len(texts):
        return ""
    values, counts = np.unique(texts, return_counts=True)
    return view.trace.strings[int(values[np.argmax(counts)])]


def _finding(
    view: DeviceView,
    pools: list[Pool],
    captured: list[Capture],
    total: int,
    reserved: int,
    settings: AllocatorSettings,
) -> Finding:
    share = total / max(reserved, 1)
    of_graphs = sum(pool.reserved_bytes for pool in pools if pool.kind in _GRAPHS)
    free = total - sum(pool.active_bytes for pool in pools)
    is_much = of_graphs >= GRAPHS_SHARE * reserved or free >= FREE_SHARE * reserved
    title = phrase("private_pools.title", count=len(pools), bytes=format_bytes(total), share=f"{share:.0%}")
    return Finding(
        "MD142",
        title,
        "warning" if is_much else "info",
        view.device.device,
        (*_evidence(view, pools, total), *_by_size(pools, captured)),
        _fixes(pools, settings),
        weight_bytes=total,
    )


def _evidence(view: DeviceView, pools: list[Pool], total: int) -> Iterator[Evidence]:
    active = sum(pool.active_bytes for pool in pools)
    yield Evidence(phrase("private_pools.reserved", when=when(view)), total, "bytes", moment_name(view.device, view.at))
    yield Evidence(phrase("private_pools.free"), total - active, "bytes")
    for pool in pools[:NUM_POOLS]:
        words = [phrase("private_pools.use", bytes=format_bytes(pool.active_bytes), count=pool.num_segments)]
        words += [phrase("private_pools.site", place=place) for place in (pool.site, pool.inner) if place]
        words += [phrase("private_pools.metadata", text=pool.text[:60])] if pool.text else []
        name = phrase(f"private_pools.kind.{pool.kind}", major=str(pool.major), minor=str(pool.minor))
        yield Evidence(name, pool.reserved_bytes, "bytes", joined(words, ", "))
    others = pools[NUM_POOLS:]
    if others:
        rest = sum(pool.reserved_bytes for pool in others)
        yield Evidence(phrase("private_pools.others", count=len(others)), rest, "bytes")


def _by_size(pools: list[Pool], captured: list[Capture]) -> Iterator[Evidence]:
    """Yields what the graphs of each batch size added, those with the most first; a note if the trace has no sizes."""
    if not captured and any(pool.kind == "graph" and pool.is_of_engine for pool in pools):
        yield Evidence(phrase("private_pools.captures"), phrase("private_pools.captures.unknown"))
    ordered = sorted(captured, key=lambda capture: -capture.reserved_bytes)
    shown = [capture for capture in ordered[:NUM_CAPTURES] if capture.reserved_bytes]
    for capture in shown:
        size = phrase(f"private_pools.captures.{capture.unit}", count=capture.size)
        words = [capture.mode] * bool(capture.mode)
        words.append(phrase("private_pools.captures.live", bytes=format_bytes(capture.live_bytes)))
        yield Evidence(
            phrase("private_pools.captures.size", size=size), capture.reserved_bytes, "bytes", joined(words, ", ")
        )
    rest = ordered[len(shown) :]
    if rest:
        total = sum(capture.reserved_bytes for capture in rest)
        live = format_bytes(sum(capture.live_bytes for capture in rest))
        name = phrase("private_pools.captures.others", count=len(rest))
        yield Evidence(name, total, "bytes", phrase("private_pools.captures.live", bytes=live))


def _fixes(pools: list[Pool], settings: AllocatorSettings) -> tuple[Fix, ...]:
    """Returns the remedies for graphs; memory of a MemPool is where the program put it."""
    kinds = {pool.kind for pool in pools}
    several = sum(pool.kind == "graph" for pool in pools) > 1
    return present(
        settings.offer("shared-graph-pool") if several else None,
        settings.offer("compile-without-graphs") if "trees" in kinds else None,
        settings.offer("no-graphs") if "graph" in kinds else None,
    )
