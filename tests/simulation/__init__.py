"""Simulated groups from a seed: the real coordinator, a model of its members, and a faulty environment."""
