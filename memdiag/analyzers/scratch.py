"""Scratch memory of cuDNN that a simulated device cannot know, and the bounds of the peak that follow from it."""

from __future__ import annotations

from collections.abc import Iterable

from memdiag.analyzers.support.context import Context
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD955": "scratch memory of cuDNN is only partly known"}


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:  # noqa: ARG001
    """Yields finding MD955 for the device with the highest peak: cuDNN calls are counted once for all devices."""
    scratch = trace.recorded.ended.scratch if trace.recorded is not None else None
    if scratch is None or not scratch.more_bytes or not trace.devices:
        return
    peaks = {device.device: device.usage_at(device.peak("allocated"))["allocated"] for device in trace.devices}
    reserved = {device.device: device.usage_at(device.peak("reserved"))["reserved"] for device in trace.devices}
    busiest = max(peaks, key=lambda number: peaks[number])
    low, high = peaks[busiest], peaks[busiest] + scratch.more_bytes
    evidence = [
        Evidence(phrase("scratch.calls"), scratch.num_calls, "calls"),
        Evidence(phrase("scratch.unknown"), scratch.num_unknown_calls, "calls"),
        Evidence(phrase("scratch.largest"), scratch.largest_bytes, "bytes"),
        Evidence(phrase("scratch.low"), low, "bytes"),
        Evidence(phrase("scratch.high"), high, "bytes"),
        Evidence(phrase("scratch.reserved"), reserved[busiest], "bytes"),
    ]
    if scratch.planner:
        evidence.append(Evidence(phrase("scratch.planner"), scratch.planner))
    size = f"{-(-scratch.more_bytes // MIB)}M"
    variable = "MEMDIAG_PHANTOM_CUDNN_WORKSPACE" if scratch.num_unknown_calls else "MEMDIAG_PHANTOM_CUDNN_EXTRA"
    yield Finding(
        "MD955",
        phrase("scratch.title", low=format_bytes(low), high=format_bytes(high)),
        "info",
        busiest,
        tuple(evidence),
        (
            Fix(phrase("scratch.fix"), "record", f"export {variable}={size}", "", phrase("scratch.fix.caveat")),
            *(
                ()
                if scratch.planner
                else (Fix(phrase("scratch.install"), "version", "pip install nvidia-cudnn-cu12", "CUDA"),)
            ),
        ),
    )
