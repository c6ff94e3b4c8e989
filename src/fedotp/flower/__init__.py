"""A real federation on Flower: one SuperLink, one SuperNode per site, the same methods and the same numbers."""
