"""Reports for people: the funnel of a join, charts, and the HTML report."""
