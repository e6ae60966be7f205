"""Agents: TD3, SAC with SimBa, Double DQN. Each is pure functions over one state."""
