"""This device's model behind OpenAI's chat protocol: `python -m edge_runtime.endpoint`."""
