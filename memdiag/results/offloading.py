"""The result of moving tensors to the host or disk in a simulated run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MovedTensors:
    """A group of similar tensors that are offloaded.

    Attributes:
        category: As in CATEGORIES; "activation" for tensors that forward saves for backward.
        name: Their name with each number replaced by a star, or their line of code if they have none.
        place: "host" or "disk".
        away_in, back_in: Phase in which most of them are offloaded, and in which they are reloaded ("" if they are
            not).
        num_moves: Number of moves over the whole trace.
        bytes: Bytes copied from the device, over the whole trace.
        exposed_us: Time that the program waits for the copies.
    """

    category: str
    name: str
    place: str
    away_in: str
    back_in: str
    num_moves: int
    bytes: int
    exposed_us: int | None


@dataclass(frozen=True, slots=True)
class Recomputable:
    """Activations of one part of the model at the peak that recomputation would not retain."""

    module: str
    bytes: int
    num_tensors: int


@dataclass(frozen=True, slots=True)
class Hooked:
    """Effect of the saved-tensor hooks alone: they offload everything that their modules save, and reload it on use.

    Attributes:
        modules: Modules whose forward call the hooks surround.
        smallest_bytes: Smaller tensors stay on the device.
        bytes_a_step: Bytes copied from the device per step, on average.
        peak_reserved_bytes, peak_allocated_bytes: Device peaks from the replay.
    """

    modules: tuple[str, ...]
    smallest_bytes: int
    bytes_a_step: int
    peak_reserved_bytes: int
    peak_allocated_bytes: int


@dataclass(frozen=True, slots=True)
class Offloading:
    """An offloading plan and its effect. Bytes and times per step are means over the steps of the trace.

    Attributes:
        strategy: "automatic" or "forced".
        budget_bytes: Memory budget of the device, or None for no limit.
        fits: Whether the replay with the moves stays within the budget, and host and disk have room. None if it fits
            only up to the recorded failed allocation, so the rest is unknown.
        missing_bytes: Device memory that is missing if it does not fit; with that much more, the replay succeeds.
        fits_with_host_bytes: Host memory with which it would fit, or None if it fits or no amount helps.
        load_peak_bytes, load_left_bytes: Peak of live bytes without and with the moves.
        bound_bytes: Lower bound of the peak of live bytes: every idle tensor is offloaded and copies take no time.
        host_peak_bytes: Peak size of the pinned pool; at most ``host_used_bytes`` of it are in use.
        disk_peak_bytes: Peak bytes on disk.
        host_budget_bytes, disk_budget_bytes: Budgets for host memory and disk.
        num_moves: Number of moves over the whole trace.
        bytes_away, bytes_back: Bytes copied from the device and to the device, per step.
        hidden_us, exposed_us: Copy time per step that overlaps computation, and that the program waits for; None if the
            trace has no times.
        step_us, new_step_us: Length of a step as recorded, and including the waits; None if the trace has no times.
        link, disk: Assumed copy speeds, in words.
        moved: Tensors to offload, most bytes first.
        recomputable: Tensors that could be recomputed instead of offloaded, most bytes first.
        hooked: Effect of saved-tensor hooks alone, or None if no activations move or their modules have no names.
        snippets: How to implement the plan today: (name, part of the plan it implements, text).
        notes: Assumptions.
    """

    strategy: str
    budget_bytes: int | None
    fits: bool | None
    missing_bytes: int
    fits_with_host_bytes: int | None
    load_peak_bytes: int
    load_left_bytes: int
    bound_bytes: int
    host_peak_bytes: int
    host_used_bytes: int
    disk_peak_bytes: int
    host_budget_bytes: int
    disk_budget_bytes: int
    num_moves: int
    bytes_away: int
    bytes_back: int
    hidden_us: int | None
    exposed_us: int | None
    step_us: int | None
    new_step_us: int | None
    link: str
    disk: str
    moved: tuple[MovedTensors, ...]
    recomputable: tuple[Recomputable, ...]
    snippets: tuple[tuple[str, str, str], ...]
    hooked: Hooked | None
    notes: tuple[str, ...] = ()
