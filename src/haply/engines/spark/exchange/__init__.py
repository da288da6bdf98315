"""How rows of tables travel between Spark's tasks: to cells in parcels, or whole to every task."""
