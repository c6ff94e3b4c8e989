"""The words server and sites use: keys of the records in their messages."""

CONFIG = "config"
ARRAYS = "arrays"
METRICS = "metrics"
PREDICTIONS = "predictions"

NUMBER = "number"
ROUND = "server-round"
ACCEPTED = "accepted"
LAST = "last"
EXAMPLES = "num-examples"
LOSS = "loss"
IMAGES = "images"
STEPS = "noisy-steps"
REFUSED = "refused"
CLASSES = "classes"
NAME = "name"
COLUMNS = ("row", "label", "predicted", "loss")  # of predictions

# steps of a secure sum: queries to sites, and what is in them
KEYS, SHARES, SURVIVORS, SIGNATURES = "secure_keys", "secure_shares", "secure_survivors", "secure_signatures"
SESSION = "session"
MARKS = "marks"
MASKED = "masked"

# what a site says of itself
PART = "part"
DOMAIN = "domain"
TRAIN_IMAGES = "train-images"
TEST_IMAGES = "test-images"


def of_metric(key: str) -> str:
    """What a site calls a metric where it tells of its tests."""
    return key.replace("_", "-")
