"""The command line and the language server of Tilewright."""
