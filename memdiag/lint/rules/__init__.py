"""One file per rule.

A rule has ``CODE``, ``SEVERITY``, ``WORDS`` (files without any of them are skipped), ``check(module) ->
Iterator[Hit]``, and optionally ``CHANGE`` (the line to paste). Its texts are in the catalogue ``lint``: title, fix,
applicability (``for``) and cost (``but``). Its page is docs/findings/<code>.md; it is registered in
``registry.LINT_RULES``.
"""
