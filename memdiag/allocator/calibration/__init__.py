"""From a recording back to requests, and the comparison of their replay with the recording."""
