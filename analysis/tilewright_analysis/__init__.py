"""The verifier and the performance model of Tilewright kernels."""
