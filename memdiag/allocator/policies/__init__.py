"""What an allocator makes of a request: how much it is rounded up, and what the driver is asked for. One folder a policy.

A policy has ``BACKEND`` (whose settings and versions it goes by), ``with_own(text)`` (the settings text with what the
policy itself asks for) and ``columns(sizes, conf, rules)``.
"""
