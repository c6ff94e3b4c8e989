"""The Flower app of fedotp: everything is in the installed package."""
