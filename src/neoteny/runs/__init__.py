"""A run's directory: its record, its checkpoints, its policy, and what can be read of them."""
