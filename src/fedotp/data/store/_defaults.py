"""How images are encoded where nobody says otherwise."""

from fedotp.data.store._format import Storage

STORAGE: Storage = "float16"
BATCH_SIZE = 64  # views in a step of the tower
