"""Models of allocators: what a recorded program would have needed under other settings, versions, policies and on other devices."""
