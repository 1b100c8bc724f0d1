"""Copy speeds between device, host and disk: profiles by name, or numbers.

The rate of a link depends on board, driver and size. These are published measurements for large pinned copies. Entries
without a measurement have the nominal rate with the usual loss (``estimate``). A number (``--link 22GB/s``) is better.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from memdiag.errors import MemdiagError
from memdiag.text import phrase

_GB = 10**9
_NUMBER = re.compile(
    r"\s*([0-9]+(?:\.[0-9]+)?)\s*(G|M)i?B?(?:/s)?(?:\s*[,/:]\s*([0-9]+(?:\.[0-9]+)?)\s*(G|M)i?B?(?:/s)?)?\s*$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Link:
    """One path for copies.

    Attributes:
        name: As given.
        away, back: Bytes per second from the device (to the disk) and to it (from the disk).
        latency_us: Microseconds before the first byte.
        pageable: Fraction of the rate for copies to memory that is not pinned.
        source: Origin of the figures.
        is_estimate: Whether they are nominal with the usual loss, instead of measured.
    """

    name: str
    away: float
    back: float
    latency_us: float
    pageable: float
    source: str
    is_estimate: bool = False


LINKS: dict[str, Link] = {
    link.name: link
    for link in (
        Link(
            "pcie3x16",
            13.0 * _GB,
            12.4 * _GB,
            10,
            0.5,
            "measured on V100 boards by bandwidthTest, as many reports give it",
        ),
        Link(
            "pcie4x16",
            26.0 * _GB,
            24.6 * _GB,
            10,
            0.5,
            "measured on A100 boards by bandwidthTest, as many reports give it",
        ),
        Link(
            "pcie5x16",
            55.0 * _GB,
            55.0 * _GB,
            10,
            0.3,
            "measured on H100 boards by nvbandwidth, as many reports give it",
        ),
        Link(
            "hccs",
            24.0 * _GB,
            24.0 * _GB,
            15,
            0.5,
            "80 % of 30 GB/s, the nominal rate of one HCCS link",
            is_estimate=True,
        ),
        Link("nvlink-c2c", 297.0 * _GB, 375.0 * _GB, 5, 0.5, "measured on Grace Hopper, arXiv 2408.11556"),
    )
}
DISKS: dict[str, Link] = {
    link.name: link
    for link in (
        Link("sata-ssd", 0.52 * _GB, 0.55 * _GB, 100, 1.0, "rate of the interface less its encoding", is_estimate=True),
        Link("nvme-gen3", 3.0 * _GB, 3.4 * _GB, 80, 1.0, "data sheets of usual drives", is_estimate=True),
        Link("nvme-gen4", 5.0 * _GB, 6.8 * _GB, 60, 1.0, "data sheets of usual drives", is_estimate=True),
        Link("nvme-gen5", 10.0 * _GB, 13.0 * _GB, 60, 1.0, "data sheets of usual drives", is_estimate=True),
    )
}


def link_named(text: str) -> Link:
    """Returns the link with a name ("pcie4x16"), or with one or two rates.

    Rates are "20GB/s" or "22GB/s,20GB/s": from the device, and to it.

    Raises:
        MemdiagError: The text is neither a name nor a rate.
    """
    return _named(text, LINKS, "--link", 10, 0.5)


def disk_named(text: str) -> Link:
    """Returns the disk with a name ("nvme-gen4"), or with one or two rates (writing, reading).

    Raises:
        MemdiagError: The text is neither a name nor a rate.
    """
    return _named(text, DISKS, "--disk", 60, 1.0)


def _named(text: str, known: dict[str, Link], option: str, latency: float, pageable: float) -> Link:
    if text.lower() in known:
        return known[text.lower()]
    match = _NUMBER.match(text)
    if not match:
        raise MemdiagError(
            phrase("offload.link", option=option, text=text), phrase("offload.link.hint", names=", ".join(known))
        )
    rates = [
        float(number) * (_GB if unit.upper() == "G" else 10**6)
        for number, unit in (match.group(1, 2), match.group(3, 4))
        if number
    ]
    if min(rates) <= 0:
        raise MemdiagError(phrase("offload.link.zero", option=option, text=text), phrase("offload.link.zero.hint"))
    return Link(text, rates[0], rates[-1], latency, pageable, "given")
