"""Find which event is the last before an uncertain time, the first after it, or the nearest to it."""
