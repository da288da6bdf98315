"""How rows of tables are sent between Spark's tasks: to cells in parcels, or as a broadcast."""
