"""What is promised and what leaks, measured."""
