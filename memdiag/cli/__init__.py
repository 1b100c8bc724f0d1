"""The command line: one file a command, which parses, calls and renders. Nothing heavy is imported before a command runs."""
