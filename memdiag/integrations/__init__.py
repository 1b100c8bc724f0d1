"""Recording from inside trainers: one module per framework, which imports only that framework.

No framework is a dependency of memdiag: import the module of the one that the program uses. ``loop`` does the work, and
serves programs with their own training loop.
"""
