"""The ServerApp: settings, central evaluation, checkpoint, progress, report."""
