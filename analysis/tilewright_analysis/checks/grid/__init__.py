"""Grid: programs and output tiles match one to one, and all roles walk the same grid."""
