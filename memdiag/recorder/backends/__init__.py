"""One allocator each: start its history, say where it stands, take a snapshot.

A backend has ``name`` ("cuda"), ``has_times`` (whether its events have them), ``is_active`` (whether anything is being
recorded), ``watch(torch, started)`` (calls ``started(backend)`` once the process uses it), ``start(max_events)``,
``stop()``, ``position()`` (device, blocks handed out, blocks given back), ``snapshot()`` (a dict in PyTorch's snapshot
format, None: nothing recorded), ``facts()`` (what else a reader should know) and ``on_oom(callback)``.
"""
