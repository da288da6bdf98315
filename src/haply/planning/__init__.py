"""How a query is answered: checked against the schemas of its tables, turned into a plan, and given to an engine."""
