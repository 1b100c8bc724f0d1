"""Seeds of the fuzzer in the formats of PyTorch's memory snapshots, with and without memdiag's marks."""

from __future__ import annotations

from typing import Any

MIB = 1 << 20
BASE = 0x7F00_0000_0000


def _frames(*lines: int) -> list[dict[str, Any]]:
    return [{"filename": "train.py", "line": line, "name": f"f{line}"} for line in lines]


def snapshot(generation: str, *, expandable: bool = False, npu: bool = False) -> dict[str, Any]:
    """Returns a snapshot with two segments, a wait for a stream, a failure and a block from before the trace."""
    segment, page = ("segment_map", "segment_unmap") if expandable else ("segment_alloc", "segment_free")
    big, small, other = BASE, BASE + 64 * MIB, BASE + 128 * MIB
    model, step = _frames(7, 3), _frames(9, 3)
    calls: list[tuple[str, int, int, int, Any]] = [
        ("free_requested", big + 18 * MIB, MIB + MIB // 2, 0, step),
        ("free_completed", big + 18 * MIB, MIB + MIB // 2, 0, step),
        (segment, small, 2 * MIB, 0, model),
        ("alloc", small, 1000, 0, model),
        ("alloc", small + 1024, 700_000, 0, step),
        ("alloc", big, 6 * MIB, 0, model),
        ("free_requested", small, 1000, 0, step),
        (segment, other, 20 * MIB, 5, model),
        ("alloc", other, 12 * MIB, 5, model),
        ("free_completed", small, 1000, 0, []),
        ("free_requested", big, 6 * MIB, 0, step),
        ("free_completed", big, 6 * MIB, 0, step),
        ("oom", 0, 90 * MIB, 0, step),
        ("free_requested", other, 12 * MIB, 5, []),
        ("free_completed", other, 12 * MIB, 5, []),
        (page, other, 20 * MIB, 5, []),
        ("alloc", big, 3 * MIB, 0, model),
        ("free_requested", big, 3 * MIB, 0, model),
    ]
    trace = []
    for index, (action, addr, size, stream, frames) in enumerate(calls):
        entry: dict[str, Any] = {"action": action, "addr": addr, "size": size, "stream": stream, "frames": frames}
        if action == "oom":
            entry["device_free"] = 5 * MIB
        if generation >= "2.1" and not npu:
            entry["time_us"] = 1_700_000_000_000_000 + 10 * index
        if generation >= "2.10":
            entry |= {"compile_context": "N/A", "user_metadata": ""}
        if generation >= "2.13":
            entry |= {"pool_id": (0, 1 if stream else 0), "forward_frames": []}
        trace.append(entry)

    def block(address: int, size: int, state: str, requested: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
        if generation == "2.0":
            history = [{"addr": address, "frames": frames, "real_size": requested}]
            return {"size": size, "state": state, **({"history": history} if state != "inactive" else {})}
        return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}

    segments = [
        {
            "device": 0,
            "address": big,
            "total_size": 20 * MIB,
            "allocated_size": 2 * MIB,
            "active_size": 5 * MIB,
            "stream": 0,
            "segment_type": "large",
            "blocks": [
                block(big, 3 * MIB, "active_pending_free", 3 * MIB, model),
                block(big + 3 * MIB, 13 * MIB, "inactive", 0, []),
                block(big + 16 * MIB, 2 * MIB, "active_allocated", 2 * MIB, step),
                block(big + 18 * MIB, 2 * MIB, "inactive", 0, []),
            ],
        },
        {
            "device": 0,
            "address": small,
            "total_size": 2 * MIB,
            "allocated_size": 700_416,
            "active_size": 700_416,
            "stream": 0,
            "segment_type": "small",
            "blocks": [
                block(small, 1024, "inactive", 0, []),
                block(small + 1024, 700_416, "active_allocated", 700_000, step),
                block(small + 701_440, 2 * MIB - 701_440, "inactive", 0, []),
            ],
        },
    ]
    if generation >= "2.1":
        for row in segments:
            row |= {
                "requested_size": row["active_size"],
                "segment_pool_id": (0, 0),
                "is_expandable": expandable,
                "frames": model,
            }
    made: dict[str, Any] = {"segments": segments, "device_traces": [trace, []]}
    if generation >= "2.5" and not npu:
        made["allocator_settings"] = {
            "PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{expandable},roundup_power2_divisions:[256:1,>:4]",
            "max_split_size": -1,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": expandable,
            "roundup_power2_divisions": {"1": 0, "2": 4},
        }
        made["external_annotations"] = [
            {"name": name, "stage": stage, "device": 0, "time_us": 1_700_000_000_000_000 + at}
            for name, stage, at in (
                ("ProfilerStep#0", "START", 0),
                ("Optimizer.step#SGD.step", "START", 55),
                ("Optimizer.step#SGD.step", "END", 75),
                ("ProfilerStep#0", "END", 160),
            )
        ]
    if npu:
        trace[:0] = [
            {"action": action, "addr": BASE - 64 * MIB, "size": 20 * MIB, "stream": 0}
            for action in ("workspace_snapshot", "segment_alloc", "alloc")
        ]
        for index, row in enumerate([*trace, *segments]):
            row["frames"] = [{"filename": "torch_npu/npu/memory.py", "line": index, "name": "f"}]
    return made


def _packed(*rows: tuple[int, ...], names: tuple[str, ...]) -> dict[str, bytes]:
    columns = zip(*rows, strict=True)
    return {
        name: b"".join(value.to_bytes(8, "little", signed=True) for value in column)
        for name, column in zip(names, columns, strict=True)
    }


def recorded(*, counted: bool) -> dict[str, Any]:
    """Returns a snapshot with memdiag's marks: two steps with phases, modules, tensors, by time or by block counts."""
    # tenths, allocs, frees
    moments = [
        (1, 0, 0),
        (2, 1, 1),
        (3, 3, 2),
        (4, 4, 3),
        (5, 4, 4),
    ]
    place = [
        (-1 if counted else (1_700_000_000_000_000 + 32 * tenth) * 1000, allocs, frees)
        for tenth, allocs, frees in moments
    ]
    told = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1)]  # initialisation, forward, backward, optimizer; the end of a step
    marks = [
        (time, kind, value, 0, allocs if counted else -1, frees if counted else -1)
        for (time, allocs, frees), (kind, value) in zip(place, told, strict=True)
    ]
    modules = [
        (time, name, 0, allocs if counted else -1, frees if counted else -1)
        for (time, allocs, frees), name in zip(place, (3, 4, 3, -1, 3), strict=True)
    ]
    seen = [
        (0, BASE + 64 * MIB + 1024, 1, 0, 1, 4),
        (0, BASE + 16 * MIB, 2, 1, 3, 3),
        (0, BASE + 17 * MIB, 3, 2, 4, 4),
        (0, BASE, 5, 5, 1, 1),
    ]
    return {
        **snapshot("2.1" if counted else "2.13", npu=counted),
        "memdiag": {
            "format": 1,
            "backend": "npu" if counted else "cuda",
            "torch_version": "2.13.0",
            "rank": 0,
            "world": 2,
            "pid": 7,
            "argv": ["train.py"],
            "reason": "exit",
            "steps": 1,
            "window": [0, 9],
            "max_events": 18,
            "has_times": not counted,
            "taken_over": "restarted",
            "phantom": False,
            "ooms": [],
            "capacity_bytes": {0: 1 << 36},
            "counts": {0: {"allocs": 5, "frees": 5, "retries": 0, "ooms": 1}},
            "fraction": 1.0,
            "settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
            "unknown_frees": 2,
            "paused_seconds": 1.5,
            "names": [
                "layers.0.up.weight",
                "grad of layers.0.up.weight",
                "exp_avg of layers.0.up.weight",
                "layers.0",
                "layers.0.up",
                "input of GPT",
            ],
            "marks": _packed(*marks, names=("time_ns", "kind", "value", "device", "allocs", "frees")),
            "modules": _packed(*modules, names=("time_ns", "name", "device", "allocs", "frees")),
            "tensors": _packed(*seen, names=("device", "addr", "category", "name", "first", "last")),
        },
    }


def with_new_fields() -> dict[str, Any]:
    """Returns a snapshot of torch 2.14 with pinned memory, notes, compiled code and frames of the forward pass."""
    made = snapshot("2.13")
    forward = ['  File "model.py", line 5, in forward\n    return self.linear(x)\n']
    fx = {"fx_node_op": "call_module", "fx_node_name": "linear", "fx_node_target": "L", "fx_original_trace": forward[0]}
    for number, entry in enumerate(made["device_traces"][0]):
        entry["user_metadata"] = ("", "weights", "cache")[number % 3]
        entry["compile_context"] = ("N/A", "0/0", "[1/0]")[number % 3]
        entry["forward_frames"] = forward if number % 2 else []
        entry["frames"] = [{**entry["frames"][0], **fx}, *entry["frames"][1:]] if entry["frames"] else []
    host = BASE + 512 * MIB
    pinned = {"address": host, "size": 8 * MIB, "requested_size": 8 * MIB, "state": "active_allocated", "frames": []}
    segment = {"device": -1, "address": host, "total_size": 8 * MIB, "stream": 0, "frames": _frames(4)}
    calls = [("segment_alloc", 8 * MIB), ("alloc", 8 * MIB), ("free_requested", 8 * MIB), ("free_completed", 8 * MIB)]
    calls += [("alloc", 8 * MIB)]
    return {
        **made,
        "host_segments": [{**segment, "blocks": [pinned]}],
        "host_traces": [
            {"action": action, "addr": host, "size": size, "stream": 0, "time_us": 9 + at, "frames": _frames(4)}
            for at, (action, size) in enumerate(calls)
        ],
    }


def sampled() -> dict[str, Any]:
    """Returns a recording with samples of the card, of its processes and of the host, and with a saved checkpoint."""
    made = recorded(counted=False)
    samples = []
    for at, when in enumerate(("start", "phase", "save", "saved", "step", "mark", "timer", "oom", "end")):
        card = {"device": 0, "total_bytes": 1 << 36, "free_bytes": (60 - at) << 30, "reserved_bytes": 22 * MIB}
        host = {"rss_bytes": (9 + at) << 30, "peak_rss_bytes": (10 + at) << 30, "pss_bytes": 9 << 30}
        host |= {"children_rss_bytes": (4 + at) << 30, "num_children": 2, "shm_used_bytes": 5, "shm_total_bytes": 9}
        host |= {"cgroup_used_bytes": (20 + at) << 30, "cgroup_limit_bytes": 29 << 30, "pinned_bytes": 3 << 30}
        host |= {"pinned_used_bytes": 2 << 30, "pinned_tensors_bytes": 1 << 30, "pinned_blocks_bytes": 2 << 30}
        sample = {"t_us": 1_700_000_000_000_000 + 20 * at, "when": when, "step": at // 4, "host": host}
        sample |= {"card": [{**card, "allocs": at // 2, "frees": at // 3}]}
        sample |= {"processes": [{"device": 0, "bytes": {7: 1 << 30, 8: at << 29}}]}
        samples.append(sample)
    made["memdiag"] |= {"samples": samples, "cards": {0: "GPU-1"}}
    return made


def snapshots() -> dict[str, tuple[Any, int | None]]:
    whole = snapshot("2.13")
    own = {
        **snapshot("2.10"),
        "memdiag": {"version": 1, "backend": "cuda", "capacity_bytes": 1 << 36, "torch_version": "2.10.0"},
        "extra": [1],
    }
    return {
        "v2.0.pickle": (snapshot("2.0"), 4),
        "v2.1.pickle": (snapshot("2.1"), 2),
        "v2.5.pickle": (snapshot("2.5"), 3),
        "v2.13.pickle": (whole, 4),
        "expandable.pickle": (snapshot("2.13", expandable=True), 5),
        "npu.pickle": (snapshot("2.1", npu=True), 4),
        "own.pickle": (own, 4),
        "recorded.pickle": (recorded(counted=False), 4),
        "recorded-npu.pickle": (recorded(counted=True), 4),
        "list.pickle": (whole["segments"], 1),
        "text.pickle": (whole, 0),
        "traces.pickle": ({"device_traces": whole["device_traces"]}, 4),
        "entries.pickle": ({"segments": [], "device_traces": whole["device_traces"][0]}, 4),
        "empty.pickle": ({"segments": [], "device_traces": []}, 4),
        "memoless.pickle": (whole, None),
        "v2.14.pickle": (with_new_fields(), 4),
        "sampled.pickle": (sampled(), 4),
    }
