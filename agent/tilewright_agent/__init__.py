"""Rewriting kernels under the verifier, and running them."""
