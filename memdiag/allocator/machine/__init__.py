"""The compiled machine: what the allocator does with each call. Policies decide sizes, this decides places."""
