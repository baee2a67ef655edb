"""One thread: the models are small, and other work may run beside."""

import torch

torch.set_num_threads(1)
