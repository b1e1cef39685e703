"""What an endpoint takes, found out by asking it: `playhead probe`.

Each measurement is a small request in the form that permits most; where the server refuses it, the
next stricter form is tried. What was found becomes a profile that `connect` reads.
"""

from playhead.probe.report import Finding, ProbeReport
from playhead.probe.run import Probe, write_profile

__all__ = ["Finding", "Probe", "ProbeReport", "write_profile"]
