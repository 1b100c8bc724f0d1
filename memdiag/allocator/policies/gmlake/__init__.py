"""GMLake's allocator: where no free block is large enough, several are mapped side by side and handed out as one.

``settings`` reads what it can be told, ``blocks`` has the two kinds of blocks, ``loop`` makes the calls, ``replay`` is
the way in.
"""
