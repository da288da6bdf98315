"""Planning: check a query against the schemas of its tables, make a plan, and pass it to an engine."""
