"""Out-of-memory text: from a message, a line of it or a whole log to cause and remedy.

Nothing here imports numpy or torch.

``scan`` finds the relevant places in a stream of any size. ``lines`` removes what loggers put around a message, and
``squeezed`` is the text that dialects read. ``dialects`` know the messages of one system each, and ``incidents`` joins
those that belong together. ``verdict`` asks ``diagnosis`` for the cause, ``ledger`` accounts for the memory, and
``advice`` gives remedies. ``read`` combines all of these.
"""
