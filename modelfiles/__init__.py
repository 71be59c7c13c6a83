"""Reads a model's files. Any service may import it; it imports no service and no torch. Heavy imports are lazy."""
