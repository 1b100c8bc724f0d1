"""MindSpeed's memory fragmentation feature as a policy: long-lived and short-lived tensors in pools of their own.

``marks`` tells when the program's functions ran that the feature hooks, ``tables`` predicts lifetimes from earlier
windows, ``levels`` finds memory in the four ``pools``, ``loop`` is the loop over all calls, ``replay`` the way in, and
``report`` says how well it went.
"""
