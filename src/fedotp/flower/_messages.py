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
REFUSED = "refused"
CLASSES = "classes"
NAME = "name"
CLIP = "clipping_norm"  # Flower's own word
COLUMNS = ("row", "label", "predicted", "loss")  # of predictions
