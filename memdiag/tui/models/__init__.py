"""Row models of the viewer: what its lists, maps and curves show, without drawing it."""
