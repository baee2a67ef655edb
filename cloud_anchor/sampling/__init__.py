"""The denoising loop and its parts: scores, schedules, unmasking, filters, stops."""
