"""Names FX nodes in the frames of a snapshot, as ``_dump_snapshot(augment_with_fx_traces=True)`` does.

Generated code has nodes only if the program sets ``torch.fx.experimental._config.enrich_profiler_metadata``. PyTorch
keeps them in the process, so they must be added before the snapshot is written.
"""

from __future__ import annotations

import sys
from typing import Any


def name_fx_nodes(content: dict[str, Any]) -> None:
    """Adds the nodes to the frames of a snapshot, in place. Equal frames are one dict, which is changed once."""
    known = getattr(sys.modules.get("torch.fx.traceback"), "_FX_METADATA_REGISTRY", None)
    augment = getattr(sys.modules.get("torch._utils"), "_augment_frames", None)
    if not known or augment is None:
        return
    places = [*content.get("segments", ()), *(b for s in content.get("segments", ()) for b in s.get("blocks", ()))]
    places += [entry for trace in content.get("device_traces", ()) for entry in trace]
    frames = {id(frame): frame for place in places for frame in place.get("frames", ())}
    augment([frame for frame in frames.values() if frame.get("filename") in known])
