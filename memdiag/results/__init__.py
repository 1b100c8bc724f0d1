"""What commands return: dataclasses only, made by the rooms above, shown by renderers, stable as JSON."""
