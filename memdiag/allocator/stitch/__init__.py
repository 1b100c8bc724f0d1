"""GMLake's allocator: where no free block is large enough, several are mapped side by side and handed out as one.

``settings`` reads what it can be told, ``pieces`` has the two kinds of blocks, ``machine`` makes the calls, ``replay`` is the way in.
"""
