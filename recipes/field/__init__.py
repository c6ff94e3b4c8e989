"""All methods of the field in five settings, on what comes with fedotp."""
