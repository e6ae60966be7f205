"""Restoring plasticity: pure functions over parameter trees, that know nothing of a particular agent."""
