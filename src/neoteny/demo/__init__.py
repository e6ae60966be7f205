"""Demonstrations: an agent whose world changes under it, and the laws of every schedule."""
