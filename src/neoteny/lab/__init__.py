"""Small experiments that isolate one thing about plasticity, each one command: ``neoteny lab NAME``."""
