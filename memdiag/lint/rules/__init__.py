"""One habit a file.

A rule has ``CODE``, ``SEVERITY``, ``WORDS`` (a file without any of them is not looked at), ``check(module) ->
Iterator[Hit]``, and maybe ``CHANGE`` (the line to paste). Its texts are in the catalogue ``lint``: title, fix, where
that applies (``for``) and its cost (``but``). Its page is docs/findings/<code>.md; its line stands in
``registry.LINT_RULES``.
"""
