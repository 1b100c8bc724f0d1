"""Row models of the viewer: the content of its lists, maps and curves, without the drawing."""
