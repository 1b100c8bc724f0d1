"""A trace in a terminal, to walk through with the keyboard."""
