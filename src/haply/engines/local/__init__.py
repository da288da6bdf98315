"""The local engine: tables in this process, kernels on threads, and DuckDB for files and certain expressions."""
