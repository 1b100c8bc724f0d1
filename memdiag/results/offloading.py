"""The result of moving tensors to the host or disk in a simulated run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MovedTensors:
    """Tensors alike that move.

    Attributes:
        category: As in CATEGORIES; "activation" for what forward leaves for backward.
        name: Their name, a star for each number; their line of code where they have none.
        place: "host" or "disk".
        away_in, back_in: Phase in which most of them go, and in which they come back ("" if they do not).
        num_moves: Over the whole trace.
        bytes: Copied from the device, over the whole trace.
        exposed_us: That the program waits for them.
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
    """Activations of one part of the model at the peak, which recomputing would not keep."""

    module: str
    bytes: int
    num_tensors: int


@dataclass(frozen=True, slots=True)
class Hooked:
    """What the snippet of saved-tensor hooks does by itself: it moves all that its modules save, and brings each back when it is needed.

    Attributes:
        modules: Whose forward it stands around.
        smallest_bytes: Smaller tensors stay.
        bytes_a_step: Copied from the device, a mean over steps.
        peak_reserved_bytes, peak_allocated_bytes: Of the device, replayed.
    """

    modules: tuple[str, ...]
    smallest_bytes: int
    bytes_a_step: int
    peak_reserved_bytes: int
    peak_allocated_bytes: int


@dataclass(frozen=True, slots=True)
class Offloading:
    """A plan for moving, and what comes of it. Bytes and times of a step are means over the steps of the trace.

    Attributes:
        strategy: "automatic" or "forced".
        budget_bytes: Of the device; None: no limit.
        fits: The replay of what is left needs no more, and host and disk have room; None: so it is up to the allocation that failed when
            it was recorded, and the rest is unknown.
        missing_bytes: Device memory that is lacking if it does not fit; with so much more, the replay goes through.
        fits_with_host_bytes: Host memory with which it would fit; None: it fits, or no amount helps.
        load_peak_bytes, load_left_bytes: Live bytes at most, before and with the moves.
        bound_bytes: Live bytes at most if all that is idle were away, and copies took no time.
        host_peak_bytes: Held by the pinned pool; ``host_used_bytes`` of it are used at most.
        disk_peak_bytes: On disk.
        host_budget_bytes, disk_budget_bytes: Of these.
        num_moves: Over the whole trace.
        bytes_away, bytes_back: Copied a step from the device and to it.
        hidden_us, exposed_us: Of the copies a step; None: the trace has no times.
        step_us, new_step_us: Length of a step as recorded, and with what is waited for; None as above.
        link, disk: How fast copies are taken to be, in words.
        moved: What moves, most bytes first.
        recomputable: What could be recomputed instead of moved, most bytes first.
        hooked: What saved-tensor hooks come to by themselves; None: no activations move, or their modules have no
            names.
        snippets: How to do it today: (name, which part of the plan it realises, text).
        notes: What had to be assumed.
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
