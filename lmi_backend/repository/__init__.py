"""What Triton is told: the tensor table, config.pbtxt, the model folder."""
