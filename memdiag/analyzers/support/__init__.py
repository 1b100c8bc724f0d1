"""What analyzers share, and what runs their predictions."""
