"""Why memory ran out: facts from a message or a trace, and the one classifier that decides the cause from them.

``facts`` has the numbers, ``thresholds`` every limit that rules compare them with, ``classifier`` the rules,
``remedies`` the remedies for both sources, and ``refuted`` the rule by which replays refute a setting. A message and a
trace of the same failure go through the same rules, so their verdicts cannot disagree. Nothing here imports numpy or
torch.
"""
