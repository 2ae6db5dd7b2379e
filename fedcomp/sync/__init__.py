"""How replicas stay equal: versions, the log, routes, and updates taken exactly once.  It needs neither flwr nor torch."""
