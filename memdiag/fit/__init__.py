"""``memdiag fit``: which configurations of a command fit on which devices, found by running it on simulated devices.

Each part of a search has its file: the grid (``grid``), the command of one configuration (``command``), its runs
(``recordings``), their peaks on each device (``measure``), the choice of the next run (``search``, with
``prediction``), and all of these for one kind of device (``worker``). The answer (``answer``) adds allocator settings
(``best_settings``), the Pareto front (``front``), and the missing memory where nothing fits (``shortfall``). ``run``
combines them.
"""
