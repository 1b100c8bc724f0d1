"""Forms of the check of allocator settings (``memdiag conf``)."""
