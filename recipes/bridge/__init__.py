"""What each difference between the authors' code and ours is worth, in points."""
