"""The demonstration: ``haply demo`` runs it; ``story`` has the main part, the other modules the smaller ones."""
