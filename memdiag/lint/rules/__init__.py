"""One habit a file.

A rule has ``CODE``, ``TITLE`` (the problem in one sentence), ``SEVERITY``, ``WORDS`` (a file without any of them is not looked at),
``FIX``, and ``check(module) -> Iterator[Hit]``. Its page is docs/findings/<code>.md; its line stands in ``registry.LINT_RULES``.
"""
