"""The remedies that ``memdiag fix`` can apply, those that cost nothing first."""

from __future__ import annotations

from memdiag.fix.base import ProgramRemedy
from memdiag.registry import Registry

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
        "lean-optimizer": f"{_HERE}.lean_optimizer",
        "shared-graph-pool": f"{_HERE}.shared_graph_pool",
        "chunked-loss": f"{_HERE}.chunked_loss",
        "checkpoint": f"{_HERE}.checkpoint",
    },
)
