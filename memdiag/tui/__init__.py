"""Terminal viewer: browse a trace with the keyboard. The data that it shows is in ``models``."""
