"""The work behind the routes: jobs, the engine that batches them, the backend that owns it."""
