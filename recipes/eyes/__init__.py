"""OpenAI's image tower with published text features, and what was measured with it."""
