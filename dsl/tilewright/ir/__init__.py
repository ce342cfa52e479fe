"""Tile IR: scalar expressions (`expr`), types (`types`), statements and kernels (`nodes`)."""
