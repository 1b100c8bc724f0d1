"""One module per allocator: starts its history, reports its position, takes a snapshot.

A backend has ``name`` ("cuda"), ``has_times`` (whether its events have times), ``is_active`` (whether it is recording),
``watch(torch, started)`` (calls ``started(backend)`` once the process uses the device), ``start(max_events)``,
``stop()``, ``position()`` (device, blocks allocated, blocks freed), ``snapshot()`` (a dict in PyTorch's snapshot
format, or None without a recording), ``facts()`` (other facts for readers) and ``on_oom(callback)``.
"""
