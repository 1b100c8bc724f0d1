"""What ``memdiag export`` has written."""
