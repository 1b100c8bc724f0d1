"""``memdiag fit``: which configurations of a command fit on which devices, found by running it on simulated devices.

Each part of a search has its file: the grid (``grid``), the command of one configuration (``command``), its runs
(``recordings``), their peaks on each device (``measure``), and the choice of the next run (``search``). ``run``
combines them.
"""
