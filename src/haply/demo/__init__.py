"""The demonstration: ``haply demo`` runs it; ``story`` has the main part, its neighbours the smaller ones."""
