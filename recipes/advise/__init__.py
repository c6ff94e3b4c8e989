"""Whether `fedotp advise` is right about test images."""
