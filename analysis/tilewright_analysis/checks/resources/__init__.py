"""Resources: shared memory, registers, threads and roles within the limits of the target."""
