"""What can be set of a run: configurations, presets, flags, and the id that they make. No JAX."""
