"""What a model's files say. Any service may import this; it imports none, and no torch. Heavy imports are lazy."""
