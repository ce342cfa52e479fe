"""The JSON schema of `tilewright check --format json`, as package data."""
