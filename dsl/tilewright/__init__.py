"""The Tilewright language: kernels on tiles, their layouts, and their lowering."""
