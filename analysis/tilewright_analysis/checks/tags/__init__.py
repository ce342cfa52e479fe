"""Tags: what lanes past an edge hold, and the exponent that values are relative to. Coordinates: `asynchronous`."""
