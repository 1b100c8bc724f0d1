"""What differs between versions: rules, settings as parameters, limits, and variables of policies."""
