"""``memdiag watch``: attaches to a running training, follows its memory, and detaches without a trace.

``attach`` chooses one of the ways in ``mechanisms`` to start an agent inside the process, and returns the
``Link`` to it. The agent is in ``memdiag/recorder/watching``.
"""
