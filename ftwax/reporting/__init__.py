"""Pictures and pages made from what a run left in its directory."""
