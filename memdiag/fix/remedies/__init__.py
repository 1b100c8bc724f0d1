"""The remedies that ``memdiag fix`` can apply, those that cost nothing first."""

from __future__ import annotations

from collections.abc import Iterable

from memdiag.errors import MemdiagError
from memdiag.fix.base import ProgramRemedy
from memdiag.registry import Registry
from memdiag.text import phrase

_HERE = "memdiag.fix.remedies"

PROGRAM_REMEDIES: Registry[ProgramRemedy] = Registry(
    "program remedy",
    ProgramRemedy,
    {
        "free-gradients": f"{_HERE}.free_gradients",
        "no-grad": f"{_HERE}.no_grad",
        "load-to-host": f"{_HERE}.load_to_host",
        "fsdp-units": f"{_HERE}.fsdp_units",
        "gradient-bucket-view": f"{_HERE}.gradient_bucket_view",
        "memory-fraction": f"{_HERE}.memory_fraction",
        "allocator-settings": f"{_HERE}.allocator_settings",
        "release-leftovers": f"{_HERE}.release_leftovers",
        "mempool-scopes": f"{_HERE}.mempool_scopes",
        "lifetime-pools": f"{_HERE}.lifetime_pools",
        "lean-optimizer": f"{_HERE}.lean_optimizer",
        "shared-graph-pool": f"{_HERE}.shared_graph_pool",
        "chunked-loss": f"{_HERE}.chunked_loss",
        "logits-dtype": f"{_HERE}.logits_dtype",
        "checkpoint": f"{_HERE}.checkpoint",
        "offload-saved": f"{_HERE}.offload_saved",
        "offload-optimizer": f"{_HERE}.offload_optimizer",
        "eight-bit-optimizer": f"{_HERE}.eight_bit_optimizer",
        "micro-batches": f"{_HERE}.micro_batches",
    },
)


def known(names: Iterable[str]) -> tuple[str, ...]:
    """Returns names of remedies.

    Raises:
        MemdiagError: There is no remedy with one of these names.
    """
    names = tuple(names)
    for name in names:
        if name not in PROGRAM_REMEDIES:
            listed = ", ".join(PROGRAM_REMEDIES)
            raise MemdiagError(phrase("fix.error.remedy", name=name), phrase("fix.error.remedy.hint", names=listed))
    return names
