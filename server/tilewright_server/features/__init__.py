"""One module a feature of the language server; each registers its handlers with `register(server)`."""
