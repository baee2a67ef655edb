"""Teaching a diffusion model to answer in few passes: its own finished answers, and training on them."""
