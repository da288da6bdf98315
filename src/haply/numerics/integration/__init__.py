"""Tools of numerical integration: where integrands have corners, pieces between these, and lattices."""
