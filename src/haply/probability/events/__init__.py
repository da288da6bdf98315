"""Which of several events it was: the last before an uncertain time, the first after it, or the nearest."""
