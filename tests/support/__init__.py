"""What the tests stand on: the network switch, the environment, a provider that speaks raw bytes."""
