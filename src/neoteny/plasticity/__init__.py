"""Plasticity: how able to learn a network still is, measured in numbers."""
