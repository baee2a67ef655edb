"""The service over HTTP: routes, schema, keys, errors, metrics, the server."""
