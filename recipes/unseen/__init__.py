"""Does FedOTP collapse on classes it has not seen? The study behind docs/unseen-classes.md."""
