"""Pictures of one's own rows and pairs, for people: explained pairs, charts, maps and pages."""
