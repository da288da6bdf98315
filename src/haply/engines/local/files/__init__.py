"""Tables from files, and answers into files."""
