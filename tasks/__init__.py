"""Where the producer's plans meet the workers' computing: the Celery app, its tasks, and the writing of metadata."""
