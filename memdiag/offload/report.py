"""The report on an offload plan: moved tensors by category and name, the cost per step, and the assumptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memdiag.offload.detail import Hooked, MovedTensors, Offloading, Recomputable
from memdiag.offload.howto import snippets
from memdiag.offload.links import DISKS, LINKS, Link
from memdiag.offload.schedule import CPU
from memdiag.offload.settings import OffloadSettings
from memdiag.offload.windows import saved_rows
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.names import collapsed
from memdiag.trace.schema import ACTIONS, CATEGORIES, PHASES
from memdiag.trace.table import Array

if TYPE_CHECKING:
    from memdiag.offload.plan import OffloadPlan

_MOST = 40  # number of listed kinds of tensors
_MODULES = 8
_OOM = ACTIONS.index("oom")


def offloading_of(
    trace: Trace,
    device: DeviceTrace,
    plan: OffloadPlan,
    settings: OffloadSettings,
    hooked: Hooked | None,
    *,
    missing_bytes: int,
    fits_with_host_bytes: int | None,
) -> Offloading:
    """Returns the report on a plan; ``missing_bytes`` and ``fits_with_host_bytes`` come from the result."""
    moves, windows, clock = plan.chosen.moves, plan.windows, plan.chosen.clock
    size = windows.copy_bytes[moves.window]
    returns = moves.back_at < device.num_events
    steps = clock.num_steps
    away_seconds = moves.out_end - moves.out_begin
    back_seconds = moves.back_end[returns] - moves.back_begin[returns]
    exposed = (float(moves.wait.sum()) + plan.chosen.stall_seconds) / steps
    spent = float(away_seconds.sum() + back_seconds.sum()) / steps
    timed = clock.is_known
    moved = _moved(trace, device, plan)
    left = int(plan.chosen.load.max(initial=0))
    return Offloading(
        strategy="automatic" if settings.auto_offload else "forced",
        budget_bytes=plan.budget,
        fits=plan.fits,
        shortfall_bytes=missing_bytes,
        sufficient_host_bytes=fits_with_host_bytes,
        live_peak_before_bytes=int(plan.load.max(initial=0)),
        live_peak_after_bytes=left,
        live_peak_lower_bound_bytes=plan.bound,
        host_peak_bytes=plan.chosen.host_bytes,
        host_used_bytes=plan.chosen.host_used_bytes,
        disk_peak_bytes=plan.chosen.disk_bytes,
        host_budget_bytes=settings.host_bytes,
        disk_budget_bytes=settings.offload_disk_size,
        num_moves=len(moves),
        offloaded_bytes_per_step=int(size.sum()) // steps,
        reloaded_bytes_per_step=int(size[returns].sum()) // steps,
        hidden_us_per_step=round(max(spent - exposed, 0.0) * 1e6) if timed else None,
        exposed_us_per_step=round(exposed * 1e6) if timed else None,
        step_us=_micro(clock.step_seconds),
        predicted_step_us=_micro(clock.step_seconds, exposed),
        link_speed=_rate(settings.link),
        disk_speed=_rate(settings.disk),
        moved=moved,
        recomputable=_recomputable(trace, device, plan),
        snippets=snippets(trace, device, plan, settings, hooked),
        saved_tensor_hooks=hooked,
        notes=tuple(_notes(trace, device, plan, settings)),
    )


def _micro(seconds: float | None, more: float = 0.0) -> int | None:
    return None if seconds is None else round((seconds + more) * 1e6)


def _rate(link: Link) -> str:
    how = "estimated" if link.is_estimate else "published" if link.name in {*LINKS, *DISKS} else "given"
    return phrase(f"offload.rate.{how}", name=link.name, away=f"{link.away / 1e9:g}", back=f"{link.back / 1e9:g}")


def kind_of(windows_category: int, is_saved: bool) -> str:
    """Returns the category of moved tensors, in words."""
    return "activation" if is_saved else CATEGORIES[windows_category].replace("_", " ")


def _moved(trace: Trace, device: DeviceTrace, plan: OffloadPlan) -> tuple[MovedTensors, ...]:
    moves, windows = plan.chosen.moves, plan.windows
    if not len(moves):
        return ()
    tensor = windows.tensor[moves.window]
    label: dict[tuple[int, int], str] = {}
    keys: list[tuple[str, str, int]] = []
    tensors = device.tensors
    rows = zip(
        tensors.name[tensor].tolist(),
        tensors.stack[tensor].tolist(),
        windows.category[moves.window].tolist(),
        windows.is_saved[moves.window].tolist(),
        moves.place.tolist(),
        strict=True,
    )
    for name, stack, category, saved, place in rows:
        if (name, stack) not in label:
            label[name, stack] = collapsed(_text(trace, name)) or trace.stacks.label(stack)
        keys.append((kind_of(category, saved), label[name, stack], place))
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    group = np.array([number[key] for key in keys])
    size, wait = windows.copy_bytes[moves.window], moves.wait
    phase = device.events.phase
    last = device.num_events - 1
    found = []
    for (kind, name, place), i in number.items():
        own = np.flatnonzero(group == i)
        comes = own[moves.back_at[own] <= last]
        found.append(
            MovedTensors(
                kind,
                name,
                "host" if place == CPU else "disk",
                _usual(phase[np.minimum(moves.out_at[own], last)]),
                _usual(phase[moves.back_at[comes]]) if len(comes) else "",
                len(own),
                int(size[own].sum()),
                round(float(wait[own].sum()) * 1e6) if plan.clock.is_known else None,
            )
        )
    return tuple(sorted(found, key=lambda each: -each.total_bytes)[:_MOST])


def _text(trace: Trace, name: int) -> str:
    return trace.strings[name] if name >= 0 else ""


def _usual(phases: Array) -> str:
    return PHASES[int(np.bincount(phases, minlength=len(PHASES)).argmax())]


def _recomputable(trace: Trace, device: DeviceTrace, plan: OffloadPlan) -> tuple[Recomputable, ...]:
    """Returns the tensors that forward saves for backward at the peak, by part of the model."""
    at = int(np.argmax(plan.load)) if len(plan.load) else -1
    rows = saved_rows(device)
    tensors = device.tensors
    rows = rows[(tensors.alloc_at[rows] <= at) & (tensors.free_requested_at[rows] > at)]
    found: dict[str, tuple[int, int]] = {}
    for row in rows.tolist():
        name = collapsed(_text(trace, int(tensors.name[row])))
        module = name.partition(" (")[0] if " (" in name else name or trace.stacks.label(int(tensors.stack[row]))
        size, count = found.get(module, (0, 0))
        found[module] = (size + int(tensors.block_bytes[row]), count + 1)
    ranked = sorted(found.items(), key=lambda item: -item[1][0])[:_MODULES]
    return tuple(Recomputable(module, size, count) for module, (size, count) in ranked)


def _notes(trace: Trace, device: DeviceTrace, plan: OffloadPlan, settings: OffloadSettings) -> list[str]:
    notes: list[str] = []
    if not plan.clock.is_known:
        notes.append(phrase("offload.note.timeless"))
    elif plan.clock.is_estimated:
        notes.append(phrase("offload.note.estimated"))
    elif settings.step_seconds is None and (trace.phantom or trace.backend == "cpu"):
        notes.append(phrase("offload.note.phantom" if trace.phantom else "offload.note.cpu"))
    if settings.link.name in LINKS or (plan.chosen.disk_bytes and settings.disk.name in DISKS):
        notes.append(phrase("offload.note.rates"))
    if trace.recorded is None:
        notes.append(phrase("offload.note.parameters"))
    if (device.events.action == _OOM).any():
        notes.append(phrase("offload.note.failed"))
    if settings.offload_checkpoint and not any(each.category == "activation" for each in _moved(trace, device, plan)):
        notes.append(phrase("offload.note.checkpoint"))
    return notes
