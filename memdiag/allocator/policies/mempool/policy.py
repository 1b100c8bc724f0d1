"""PyTorch's CUDA caching allocator with pools of the program's own for weights, optimizer states and layers: ``torch.cuda.MemPool``."""

from __future__ import annotations

from typing import Any

from memdiag.allocator.policies.caching import policy as caching
from memdiag.allocator.policies.mempool.scopes import NAMES, MempoolReplay, Scopes, replay_mempool, scopes_of
from memdiag.allocator.versions import variables
from memdiag.allocator.workload import Workload
from memdiag.errors import MemdiagError
from memdiag.trace.model import DeviceTrace, Trace

BACKEND = caching.BACKEND
VARIABLES = ("scopes", "use_on_oom")
columns = caching.columns


def with_own(text: str) -> str:
    """Returns the settings without the variables among them."""
    return variables.settings_of(text)


def marks(trace: Trace, device: DeviceTrace, workload: Workload) -> Scopes:
    """Returns where the scopes of the pools are open."""
    return scopes_of(trace, device, workload)


def options(text: str, scopes: Scopes) -> dict[str, Any]:
    """Returns what the variables in the settings say of the pools.

    ``use_on_oom=1``: they are made with ``MemPool(use_on_oom=True)``. ``scopes=weights+layers``: only these scopes.

    Raises:
        MemdiagError: There is no such variable or scope.
    """
    given, _ = variables.split(text)
    variables.known(given, VARIABLES, "the policy of pools of the program's own")
    wanted = given.get("scopes", "+".join(NAMES)).split("+")
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        raise MemdiagError(
            f"scopes={given['scopes']}: there is no scope {unknown[0]!r}",
            f"choose from {', '.join(NAMES)}, joined by +",
        )
    return {"scopes": scopes.only(wanted), "lends": variables.number("use_on_oom", given.get("use_on_oom", "0")) > 0}


def replay(workload: Workload, scopes: Scopes, *, conf: str = "", **how: Any) -> MempoolReplay:
    """Replays a workload."""
    return replay_mempool(
        workload, base="caching", policy="mempool", conf=with_own(conf), text=conf, **options(conf, scopes), **how
    )
