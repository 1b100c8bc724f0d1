"""Things that can be added: each registry maps a name to "module:attribute", imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Read in this order: a format that can be told from its first bytes comes before one that needs a look at its columns.
SOURCES: dict[str, str] = {
    "torch-snapshot": "memdiag.sources.torch_snapshot",
    "memory-viz-html": "memdiag.sources.memory_viz_html",
    "event-npz": "memdiag.sources.event_npz",
    "ascend-db": "memdiag.sources.ascend_db",
    "msmemscope-db": "memdiag.sources.msmemscope_db",
    "msmemscope-csv": "memdiag.sources.msmemscope_csv",
    "ascend-csv": "memdiag.sources.ascend_csv",
    "ascend-memory-usage": "memdiag.sources.ascend_memory_usage",
    "lifespans-csv": "memdiag.sources.lifespans_csv",
    "memory-timeline": "memdiag.sources.memory_timeline",
    "chrome-trace": "memdiag.sources.chrome_trace",
}

# In the order in which their findings are thought of; the report sorts by severity and bytes.
ANALYZERS: dict[str, str] = {
    "quality": "memdiag.analyzers.quality",
    "peak": "memdiag.analyzers.peak",
    "kept-passes": "memdiag.analyzers.kept_passes",
    "fragmentation": "memdiag.analyzers.fragmentation",
    "lifetimes": "memdiag.analyzers.lifetimes",
    "lifetime-pools": "memdiag.analyzers.lifetime_pools",
    "leaks": "memdiag.analyzers.leaks",
    "churn": "memdiag.analyzers.churn",
    "changing-sizes": "memdiag.analyzers.changing_sizes",
    "streams": "memdiag.analyzers.streams",
    "communication": "memdiag.analyzers.communication",
    "scattered": "memdiag.analyzers.scattered",
    "intermediates": "memdiag.analyzers.intermediates",
    "kept_chains": "memdiag.analyzers.kept_chains",
    "buckets": "memdiag.analyzers.buckets",
    "gathered": "memdiag.analyzers.gathered",
    "leftovers": "memdiag.analyzers.leftovers",
    "loaded-twice": "memdiag.analyzers.loaded_twice",
    "regrown": "memdiag.analyzers.regrown",
    "settings": "memdiag.analyzers.settings",
}

# What a replay can go by.
POLICIES: dict[str, str] = {
    "caching": "memdiag.allocator.policies.caching",
    "expandable": "memdiag.allocator.policies.expandable",
    "npu": "memdiag.allocator.policies.npu",
    "npu-expandable": "memdiag.allocator.policies.npu_expandable",
    "lifecycle": "memdiag.allocator.policies.lifecycle",
    "lifecycle-stack": "memdiag.allocator.policies.lifecycle_stack",
    "lifetime-oracle": "memdiag.allocator.policies.lifetime_oracle",
    "stitch": "memdiag.allocator.policies.stitch",
    "mempool": "memdiag.allocator.policies.mempool",
    "npu-mempool": "memdiag.allocator.policies.npu_mempool",
    "plan": "memdiag.allocator.policies.plan",
    "bound": "memdiag.allocator.policies.bound",
}

# Habits that ``memdiag lint`` looks for in source code, by the code of their finding.
LINT_RULES: dict[str, str] = {
    "MD801": "memdiag.lint.rules.gather_list",
    "MD802": "memdiag.lint.rules.embedding",
    "MD803": "memdiag.lint.rules.collectives",
    "MD804": "memdiag.lint.rules.empty_cache",
    "MD805": "memdiag.lint.rules.host_copies",
    "MD806": "memdiag.lint.rules.waits_in_forward",
    "MD807": "memdiag.lint.rules.waits_in_loop",
    "MD808": "memdiag.lint.rules.unfused",
    "MD809": "memdiag.lint.rules.cumsum",
    "MD810": "memdiag.lint.rules.gradient_buckets",
    "MD811": "memdiag.lint.rules.record_stream",
    "MD812": "memdiag.lint.rules.kept_graph",
}

# What gathers the data that ``memdiag plot --kind`` draws (``memdiag.render.plot`` draws it).
PLOT_DATA: dict[str, str] = {
    "timeline": "memdiag.views.plot_timeline:timeline_of",
    "fragmentation": "memdiag.views.plot_fragmentation:fragmentation_of",
    "lifetimes": "memdiag.views.plot_lifetimes:lifetimes_of",
    "policies": "memdiag.views.plot_policies:policies_of",
    "map": "memdiag.views.plot_map:map_of",
}

# What ``memdiag export --format`` writes.
EXPORTS: dict[str, str] = {
    "perfetto": "memdiag.exports.perfetto",
    "speedscope": "memdiag.exports.speedscope",
    "csv": "memdiag.exports.csv_tables",
    "parquet": "memdiag.exports.parquet",
    "snapshot": "memdiag.exports.snapshot",
}

# Where ``memdiag fleet`` reads its files.
FLEET_ENGINES: dict[str, str] = {
    "local": "memdiag.fleet.local:Local",
    "ray": "memdiag.fleet.on_ray:OnRay",
}


def resolve(target: str) -> Any:
    """Imports ``"module"`` or ``"module:attribute"`` and returns it."""
    module, _, attribute = target.partition(":")
    loaded = import_module(module)
    return getattr(loaded, attribute) if attribute else loaded
