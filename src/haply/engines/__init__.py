"""The engines that run plans. Neither knows the other, and neither knows probability."""
