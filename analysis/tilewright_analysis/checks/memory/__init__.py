"""Memory: accesses inside their tensors and rings, index arithmetic inside 32 bits."""
