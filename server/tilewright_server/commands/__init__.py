"""One module a subcommand: SUMMARY, add_arguments, run."""
