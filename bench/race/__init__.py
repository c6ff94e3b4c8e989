"""The same federated prompt learning on the field's engines and on fedotp, timed (`README.md`)."""
