"""Normal distributions in several dimensions: boxes, discs, balls, quadratic forms and polynomials."""
