"""GMLake's allocator: if no free block is large enough, it maps several next to each other as one block.

``settings`` reads its settings, ``blocks`` has the two kinds of blocks, ``loop`` makes the calls, and ``replay`` is the
entry point.
"""
