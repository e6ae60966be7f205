"""What is remembered, and what is replayed. NumPy only; JAX in ``neoteny.replay.device`` alone."""
