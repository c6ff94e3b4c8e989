"""Attacks on federations, and what robust rules and private prompts do against them."""
