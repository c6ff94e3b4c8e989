"""A Ray cluster as the place where many runs go."""

from fedotp.runs.cluster._engine import RayCluster as RayCluster
