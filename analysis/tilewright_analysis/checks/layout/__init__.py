"""Layout: what copies and matrix instructions demand of strides, shapes and shared-memory layouts."""
