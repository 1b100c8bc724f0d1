"""Memory of inference servers: start-up logs to one account of each card. An engine is one file in ``engines``."""
