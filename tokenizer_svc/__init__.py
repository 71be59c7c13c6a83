"""Turns conversations into prompt tokens. Knows templates and vocabularies; knows no model, no request, no client."""
