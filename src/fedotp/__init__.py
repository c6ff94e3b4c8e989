"""Personalised federated prompt learning of CLIP by unbalanced optimal transport (FedOTP)."""

__version__ = "0.1.0.dev0"
