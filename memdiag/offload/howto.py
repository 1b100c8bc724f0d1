"""Ways to carry out an offload plan: a PyTorch snippet, and settings of frameworks that move the same tensors.

The texts are in ``messages/offload_howto.json``; the code to paste is the same in every language.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from memdiag.offload.detail import Hooked, Snippet
from memdiag.offload.modules import block_of_activation, module_of_activation
from memdiag.offload.schedule import DISK
from memdiag.offload.settings import OffloadSettings
from memdiag.offload.snippet import ELSEWHERE, PINNED, SAVED_TENSORS
from memdiag.offload.windows import GRADIENT, PARAMETER, STATE
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array
from memdiag.units import GIB, format_bytes

if TYPE_CHECKING:
    from memdiag.offload.plan import OffloadPlan

_FSDP = """\
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
fully_shard(model, offload_policy=CPUOffloadPolicy(pin_memory={}))"""


def snippets(
    trace: Trace, device: DeviceTrace, plan: OffloadPlan, settings: OffloadSettings, hooked: Hooked | None
) -> tuple[Snippet, ...]:
    """Returns the snippets and settings that carry out a plan, or a part of it."""
    moves, windows = plan.chosen.moves, plan.windows
    if not len(moves):
        return ()
    of, saved = windows.category[moves.window], windows.is_saved[moves.window]
    peak = int(np.argmax(plan.load)) if len(plan.load) else 0
    there = (moves.out_at <= peak) & (moves.back_at > peak)
    size = windows.device_bytes[moves.window]

    def at_peak(which: Array) -> str:
        return format_bytes(int(size[there & which].sum()))

    found: list[Snippet] = []
    states, weights = (of == STATE) & ~saved, np.isin(of, (PARAMETER, GRADIENT)) & ~saved
    if saved.any():
        found += _of_activations(trace, device, plan, at_peak(saved), hooked)
    if states.any() or weights.any():
        found += _of_the_model(at_peak(states), at_peak(weights), states.any(), weights.any(), settings)
    found.append(_mindspore(states.any() or weights.any(), bool((moves.place == DISK).any()), plan.budget, settings))
    return tuple(found)


def modules_of(trace: Trace, device: DeviceTrace, plan: OffloadPlan) -> list[str]:
    """Returns the parts of the model whose activations move: numbered ones if there are any, in execution order."""
    moves, windows = plan.chosen.moves, plan.windows
    rows = windows.tensor[moves.window[windows.is_saved[moves.window]]]
    rows = rows[np.argsort(device.tensors.alloc_at[rows], kind="stable")]
    names = [trace.strings[name] for name in device.tensors.name[rows].tolist() if name >= 0]
    paths = list(
        dict.fromkeys(
            path for path in (block_of_activation(name) or module_of_activation(name) for name in names) if path
        )
    )
    # For a module that contains others, the part that allocated the tensor is unknown; a list of modules is never
    # called itself.
    return [path for path in paths if not any(other.startswith(f"{path}.") for other in paths)]


def smallest_of(plan: OffloadPlan) -> int:
    """Returns the bytes of the smallest activation that moves."""
    moves, windows = plan.chosen.moves, plan.windows
    sizes = windows.copy_bytes[moves.window[windows.is_saved[moves.window]]]
    return int(sizes.min()) if len(sizes) else 0


def _of_activations(
    trace: Trace, device: DeviceTrace, plan: OffloadPlan, size: str, hooked: Hooked | None
) -> list[Snippet]:
    modules = modules_of(trace, device, plan)
    found: list[Snippet] = []
    if modules and hooked is not None:
        room = ELSEWHERE if trace.backend == "cpu" else PINNED
        text = (
            SAVED_TENSORS.replace("ROOM", room)
            .replace("MODULES", json.dumps(modules))
            .replace("SMALLEST", str(smallest_of(plan)))
        )
        part = phrase(
            "offload_howto.hooks.part",
            modules=len(modules),
            bytes=format_bytes(hooked.offloaded_bytes_per_step),
            reserved=format_bytes(hooked.peak_reserved_bytes),
            allocated=format_bytes(hooked.peak_allocated_bytes),
        )
        found.append(Snippet(phrase("offload_howto.hooks"), part, text))
    layers = len(modules) or 1
    found.append(
        Snippet(
            phrase("offload_howto.megatron-te"),
            phrase("offload_howto.megatron-te.part", bytes=size),
            (
                f"--cpu-offloading-num-layers {layers}   # TransformerConfig(cpu_offloading=True, "
                f"cpu_offloading_num_layers={layers})"
            ),
        )
    )
    found.append(
        Snippet(
            phrase("offload_howto.mindspeed"),
            phrase("offload_howto.mindspeed.part"),
            "--swap-attention --swap-modules self_attention",
        )
    )
    return found


def _of_the_model(
    states: str, weights: str, has_states: object, has_weights: object, settings: OffloadSettings
) -> list[Snippet]:
    found: list[Snippet] = [
        Snippet(
            phrase("offload_howto.fsdp"),
            phrase("offload_howto.fsdp.part", weights=weights, states=states),
            _FSDP.format(settings.enable_pinned_mem),
        ),
        Snippet(
            phrase("offload_howto.deepspeed"),
            phrase("offload_howto.deepspeed.part", weights=weights, states=states),
            _deepspeed(has_states, has_weights, settings),
        ),
    ]
    if has_states:
        found.append(
            Snippet(
                phrase("offload_howto.megatron"),
                phrase("offload_howto.megatron.part", states=states),
                "--optimizer-cpu-offload --optimizer-offload-fraction 1.0",
            )
        )
        found.append(
            Snippet(
                phrase("offload_howto.mindspeed"),
                phrase("offload_howto.mindspeed.states", states=states),
                "--swap-optimizer",
            )
        )
    return found


def _deepspeed(has_states: object, has_weights: object, settings: OffloadSettings) -> str:
    disk = settings.offload_param == "disk"
    place: dict[str, object] = {"device": "nvme" if disk else "cpu", "pin_memory": settings.enable_pinned_mem}
    if disk:
        place["nvme_path"] = settings.offload_path
    stage: dict[str, object] = {"stage": 3 if has_weights else 2}
    if has_weights:
        stage["offload_param"] = place
    if has_states:
        stage["offload_optimizer"] = place
    return json.dumps({"zero_optimization": stage}, indent=2)


def _mindspore(of_model: object, on_disk: bool, budget: int | None, settings: OffloadSettings) -> Snippet:
    place = settings.offload_param or ("disk" if on_disk else "cpu" if of_model else "")
    config = {
        "offload_param": place,
        "auto_offload": settings.auto_offload,
        "offload_cpu_size": _mindspore_size(settings.offload_cpu_size),
        "offload_disk_size": _mindspore_size(settings.offload_disk_size),
        "offload_path": settings.offload_path,
        "host_mem_block_size": _mindspore_size(settings.host_mem_block_size),
        "enable_pinned_mem": settings.enable_pinned_mem,
        "enable_aio": settings.enable_aio,
        "hbm_ratio": settings.hbm_ratio,
        "cpu_ratio": settings.cpu_ratio,
    }
    memory = f', max_device_memory="{_mindspore_size(budget)}"' if budget else ""
    text = (
        f'mindspore.set_context(mode=mindspore.GRAPH_MODE, jit_level="O0", memory_offload="ON"{memory})\n'
        f"mindspore.set_offload_context(offload_config={json.dumps(config, indent=2)})"
    )
    return Snippet(
        phrase("offload_howto.mindspore"),
        phrase("offload_howto.mindspore.part"),
        text.replace("true", "True").replace("false", "False"),
    )


def _mindspore_size(size: int) -> str:
    """Returns a size in MindSpore's notation, whose GB has 1024^3 bytes.

    It is rounded down to hundredths, but never to 0.
    """
    return f"{max(size * 100 // GIB, 1) / 100:g}GB"
