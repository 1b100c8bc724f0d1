"""Words for the result of a simulated run, the same on every surface."""

from __future__ import annotations

from memdiag.allocator.outlook import Outlook, Rest
from memdiag.findings import PAST_FAILURE, RECORDED_PART
from memdiag.units import format_bytes, format_count

OUT_OF_MEMORY = "out of memory"
RUNS = "yes"
PART = "recorded part"
PAST = "past failure"
MEANINGS = {
    PART: "recorded part: nothing fails as far as the recording goes, which is not known to be the whole run",
    PAST: "past failure: the allocation that failed when it was recorded is served; the rest of the run was not recorded",
}


def fate(fits: bool | None, basis: str) -> str:
    """Returns the result of a simulated run in one or two words."""
    if basis == PAST_FAILURE and fits is None:
        return PAST
    if not fits:
        return OUT_OF_MEMORY
    return PART if basis == RECORDED_PART else RUNS


def past_failure(outlook: Outlook) -> str:
    """Returns the verdict on a run that gets past the failed allocation at which its recording ends."""
    where = f" in step {outlook.failed_step}" if outlook.failed_step >= 0 else ""
    what = f"{format_bytes(outlook.failed_bytes)} at event {format_count(outlook.failed_at)}{where}"
    return f"gets past the failed allocation ({what}); the rest of the run is unknown"


def estimate(rest: Rest) -> str:
    """Returns the estimate of the rest of a run, as a sentence without its full stop."""
    peak = format_bytes(rest.peak_reserved_bytes)
    if rest.basis == "optimizer_state":
        who = f"{rest.optimizer} (assumed)" if rest.is_optimizer_assumed else rest.optimizer
        said = f"{who} has yet to make {format_bytes(rest.state_bytes)} of state"
        if rest.fits is False:
            return f"Estimate: {said}, and the next step fails when it comes to this point"
        return f"Estimate: {said}; with it the next step needs at least {peak} reserved, which the device has"
    if rest.fits is False:
        return f"Estimate from step {rest.step}, which made the same requests up to here: a later request fails"
    return f"Estimate from step {rest.step}, which made the same requests up to here: peak {peak} reserved, and no later request fails"


def sentences(outlook: Outlook) -> list[str]:
    """Returns the estimate of the rest, and how to learn more; nothing where nothing is unknown."""
    if outlook.fits is not None or outlook.basis != PAST_FAILURE:
        return []
    said = [] if outlook.rest is None else [f"{estimate(outlook.rest)}."]
    if outlook.rerun:
        said.append(f"To record the rest, run the program once on a simulated device with more memory: {outlook.rerun}")
    return said
