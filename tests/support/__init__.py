"""What the tests stand on beside `playhead.testing`: strict servers, the invariants of a run."""
