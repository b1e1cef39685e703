"""Speech engines behind one interface."""
