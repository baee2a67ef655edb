"""The codecs: one module per body, and the models and coders that they share."""
