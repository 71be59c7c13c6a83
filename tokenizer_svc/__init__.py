"""Turns conversations into prompt tokens. Knows chat templates and vocabularies; no models, requests or clients."""
