"""The tiny pair: a synthetic world, the models that the project trains on it, and a demo."""
