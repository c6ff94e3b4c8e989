"""What the demo shows was chosen on other splits than it shows."""
