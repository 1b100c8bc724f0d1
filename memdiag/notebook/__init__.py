"""memdiag in a notebook: the cell magic, HTML for results, and the list of live tensors."""
