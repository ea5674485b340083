"""What all rooms share: distributions, training, random numbers, runtime."""
