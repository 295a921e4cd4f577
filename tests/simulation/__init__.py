"""Whole groups from a seed: the real coordinator, a model of its members, and a world that treats both badly."""
