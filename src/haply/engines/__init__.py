"""The engines that run plans. Neither imports the other, and neither computes probabilities."""
