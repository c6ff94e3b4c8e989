"""How the embedded backbone `mini` was made: material, targets, student, text tower, evaluation."""
