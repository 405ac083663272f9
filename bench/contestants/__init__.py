"""Programs that are measured, or that measure: each is a process that the judge asks."""
