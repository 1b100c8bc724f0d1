"""Programs that ``memdiag fit --model`` runs in the user's Python. memdiag may be missing there."""
