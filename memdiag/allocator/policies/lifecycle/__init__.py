"""MindSpeed's memory fragmentation feature as a policy: lifetime-segregated pools.

``marks`` has the times at which the hooked functions ran, ``tables`` predicts lifetimes from earlier windows, and
``levels`` finds memory in the four ``pools``. ``loop`` is the loop over all calls, ``replay`` the entry point, and
``report`` measures the result.
"""
