"""Analyzers: each file answers one question about a trace. `report` runs them; `support` contains shared code.

A module has ``CODES`` (finding code: one-line meaning) and

    def analyze(trace: Trace, context: Context) -> Iterable[Finding]

Codes: MD1xx live memory, MD2xx fragmentation, MD3xx growth, MD4xx churn, MD5xx streams, MD6xx settings, MD9xx the
input.
"""
