"""Out-of-memory text: from a message, a line of it or a whole log to cause and remedy.

Nothing here loads numpy or torch.

``scan`` finds the places in a stream of any size, ``lines`` takes away what loggers put around a message, ``squeezed``
is the text that dialects read, ``dialects`` know one system's words each, ``incidents`` joins what belongs together,
``verdict`` asks ``diagnosis`` for the cause, ``ledger`` accounts for the memory, ``advice`` says what to do. ``read``
is the whole way.
"""
