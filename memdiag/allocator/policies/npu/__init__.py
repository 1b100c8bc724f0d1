"""torch_npu's caching allocator, also with expandable segments."""
