"""Allocator models: replay a recorded program under other settings, versions, policies and devices."""
