"""Normal distributions in several dimensions: boxes, discs, quadratic forms, and what follows from them."""
